package main

import (
	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi/client"
)

// dot is the sign that a session's status begins with, in the colour of its state.
func (c *ctl) statusDot(s client.Session) string {
	sign, colour := wording.Mark(s)
	return c.paint(colour, sign)
}

// left is leftovers, where the sessions are this machine's: on another one's they are not seen, and
// what is here under the same name is another session's.
func (c *ctl) leftovers(s client.Session) int {
	if c.host != "" {
		return 0
	}
	return countLeftovers(s)
}

// leftovers counts the processes in a session's control group beside its shim and tmux.
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
