package main

import "bytes"

// peerKind tells, by its control group, what a process that connects to the socket may do. This
// keeps other sessions' agents, and those that are confined to what they may open, from typing into
// the agent's terminal and from taking it over. It is no boundary between processes of one user: a
// process can move itself into another control group, trace the shim, or type by way of tmux.
type peerKind int

const (
	foreignPeer peerKind = iota // in the scope of another session, or gone: it is disconnected
	ownPeer                     // in this session's scope: it may hand over the terminal of a new pane
	daemonPeer                  // in no session's scope: a daemon may be started by hand anywhere else
	anyPeer                     // everybody where the shim itself is in no session's scope, as in tests
)

// mayJoin and mayType tell which messages are taken from such a process.
func (k peerKind) mayJoin() bool { return k == ownPeer || k == anyPeer }
func (k peerKind) mayType() bool { return k == daemonPeer || k == anyPeer }

// peer finds out what the process at the other end of a connection may do.
func (s *shim) peer(fd int) peerKind {
	if sessionScope(s.group) == nil {
		return anyPeer
	}
	pid, e := sysPeer(fd)
	if e != 0 {
		return foreignPeer
	}
	return kindOf(s.group, groupOf(pid, s.room[:]))
}

// kindOf tells what a process in a control group may do, where own is the shim's, which is in a
// session's scope. Scopes that both are in, as where Corral runs inside one of its own sessions
// with a systemd of its own, are no other session's.
func kindOf(own, peer []byte) peerKind {
	scope := sessionScope(own)
	switch below, is := bytes.CutPrefix(peer, scope); {
	case len(peer) == 0:
		return foreignPeer
	case is && (len(below) == 0 || below[0] == '/'):
		return ownPeer
	}
	if below, is := bytes.CutPrefix(scope, peer); is && below[0] == '/' { // the scope is below it
		return daemonPeer
	}
	common := 0
	for i := 0; i < min(len(peer), len(scope)) && peer[i] == scope[i]; i++ {
		if peer[i] == '/' {
			common = i
		}
	}
	if sessionScope(peer[common:]) != nil {
		return foreignPeer
	}
	return daemonPeer
}

// sessionScope returns the part of a control group's path that ends with the innermost scope of a
// session, nil if there is none.
func sessionScope(path []byte) []byte {
	for end := len(path); end > 0; end = bytes.LastIndexByte(path[:end], '/') {
		name := path[bytes.LastIndexByte(path[:end], '/')+1 : end]
		if bytes.HasPrefix(name, []byte("app-corral-")) && bytes.HasSuffix(name, []byte(".scope")) {
			return path[:end]
		}
	}
	return nil
}

// makeRoom keeps the slots of the daemon free: beside the pane that has joined, one connection from
// the session's own scope is kept, the last.
func (s *shim) makeRoom(kind peerKind) {
	for _, c := range s.conns {
		if kind == ownPeer && c != nil && c.fd >= 0 && c.kind == ownPeer && c != s.pane.joined {
			s.drop(c)
		}
	}
}
