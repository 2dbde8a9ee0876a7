package main

import "github.com/corrald/corral/dbusapi/client"

// remaining is leftovers, where the sessions are this machine's: on another one's they are not seen, and
// what is here under the same name is another session's.
func (c *ctl) leftovers(s client.Session) int {
	if c.host != "" {
		return 0
	}
	return countLeftovers(s)
}

// countLeftovers counts the processes in a session's control group beside its shim and tmux.
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
