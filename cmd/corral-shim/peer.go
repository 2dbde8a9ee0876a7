package main

import (
	"bytes"

	"github.com/corrald/corral/internal/unitname"
)

// peerKind is what a process that connects to the socket is permitted to do, according to its
// control group. This prevents agents of other sessions, and sandboxed agents, from typing into
// this agent's terminal or replacing it. It is not a security boundary between processes of one
// user: a process can move itself into another control group, trace the shim, or type through tmux.
type peerKind int

const (
	foreignPeer peerKind = iota // in the scope of another session, or already exited: it is disconnected
	ownPeer                     // in this session's scope: it may pass the terminal of a new pane
	daemonPeer                  // outside of all session scopes: a daemon can be started by hand anywhere
	anyPeer                     // any process if the shim itself is not in a session scope, as in tests
)

// canJoin and canType report which messages are accepted from such a process.
func (k peerKind) canJoin() bool { return k == ownPeer || k == anyPeer }
func (k peerKind) canType() bool { return k == daemonPeer || k == anyPeer }

// classifyConnection returns what the process at the other end of a connection is permitted to do.
func (s *shim) classifyConnection(fd int) peerKind {
	if unitname.ScopeIn(s.cgroup) == nil {
		return anyPeer
	}
	pid, e := sysPeer(fd)
	if e != 0 {
		return foreignPeer
	}
	return classifyPeer(s.cgroup, cgroupOf(pid, s.cgroupBuffer[:]))
}

// classifyPeer returns the kind of a process in the control group peer. own is the shim's control
// group, which is in a session scope. A scope that contains both does not make the peer foreign:
// Corral may run with a systemd of its own inside one of its own sessions.
func classifyPeer(own, peer []byte) peerKind {
	scope := unitname.ScopeIn(own)
	switch below, is := bytes.CutPrefix(peer, scope); {
	case len(peer) == 0:
		return foreignPeer
	case is && (len(below) == 0 || below[0] == '/'):
		return ownPeer
	}
	if below, is := bytes.CutPrefix(scope, peer); is && below[0] == '/' { // the scope is below the peer
		return daemonPeer
	}
	common := 0
	for i := 0; i < min(len(peer), len(scope)) && peer[i] == scope[i]; i++ {
		if peer[i] == '/' {
			common = i
		}
	}
	if unitname.ScopeIn(peer[common:]) != nil {
		return foreignPeer
	}
	return daemonPeer
}

// limitOwnConnections keeps slots free for the daemon: from the session's own scope it keeps only
// the latest connection, beside that of the joined pane.
func (s *shim) limitOwnConnections(kind peerKind) {
	for _, c := range s.conns {
		if kind == ownPeer && c != nil && c.fd >= 0 && c.kind == ownPeer && c != s.pane.joined {
			s.disconnect(c)
		}
	}
}
