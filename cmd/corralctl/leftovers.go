package main

import "github.com/corrald/corral/dbusapi/client"

// leftovers is countLeftovers for sessions of this machine. For another machine it returns 0: a
// control group of the same name here would belong to another session.
func (c *ctl) leftovers(s client.Session) int {
	if c.host != "" {
		return 0
	}
	return countLeftovers(s)
}

// countLeftovers returns the number of processes in a session's control group besides its shim and
// tmux.
func countLeftovers(s client.Session) int {
	if s.ControlGroup == "" {
		return 0
	}
	n := 0
	for _, p := range groupProcesses(s.ControlGroup) {
		if !p.isCorralProcess() {
			n++
		}
	}
	return n
}
