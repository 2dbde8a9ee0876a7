package main

import (
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/internal/shimwire"
)

// leftovers returns the number of leftover processes of a session of this machine. For another
// machine it returns 0: a control group of the same name here would belong to another session.
func (c *ctl) leftovers(s client.Session) int {
	if c.isOnHost(s.Id) {
		return 0
	}
	return shimwire.CountLeftovers(s.ControlGroup)
}
