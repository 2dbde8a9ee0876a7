package server

import (
	"fmt"
	"maps"
	"sync/atomic"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/supervisor"
)

// client is one connection to the bus. It counts its pending calls, their bytes, and those of them
// that list all sessions.
type client struct {
	agent        atomic.Pointer[string] // what callingAgent returns; nil until it was determined
	calls, lists atomic.Int32
	bytes        atomic.Int64
}

// maxCalls is the maximum number of pending calls of one client; each occupies about 8 KiB until it
// is answered. It lets a client make one call for each of many sessions at once; with more sessions
// than that (MaxSessions= is 10,000 by default) it has to wait for replies. maxLists is the maximum
// number of its pending calls that list all sessions: there is no use for several at once.
const maxCalls, maxLists = 2048, 16

// maxBytes is the maximum total size of the pending calls of one client. A call stays in memory
// until it is answered, also while it waits for another call.
const maxBytes = 2 * bus.MaxMessage

// maxClients is the number of clients above which those without pending calls are forgotten.
const maxClients = 1024

// slot is the share of its client's limits that a pending call occupies.
type slot struct {
	gate   *gate
	client *client
	lists  bool // the call lists all sessions
	bytes  int64
}

// admit reserves a slot for the call, or returns an error if a limit is exceeded or the server is
// closing. It runs on the goroutine that reads from the connection.
func (s *Server) admit(msg *dbus.Message, length int) (*slot, error) {
	taken := &slot{s.gate, s.clientOf(msg), listsSessions(member(msg)), int64(length)}
	switch {
	case taken.client.calls.Load() >= maxCalls:
		return nil, newError(dbusapi.LimitsExceeded,
			fmt.Sprintf("too many calls of this client are pending: at most %d are allowed", maxCalls))
	case taken.lists && taken.client.lists.Load() >= maxLists:
		return nil, newError(dbusapi.LimitsExceeded,
			fmt.Sprintf("too many requests of this client for all sessions are pending: at most %d are allowed", maxLists))
	case taken.client.bytes.Load()+taken.bytes > maxBytes:
		return nil, newError(dbusapi.LimitsExceeded,
			fmt.Sprintf("the pending calls of this client are too large: at most %d bytes are allowed", maxBytes))
	case !s.gate.enter():
		return nil, supervisor.ErrClosed
	}
	if s.info.CallBegins != nil {
		s.info.CallBegins()
	}
	taken.client.calls.Add(1)
	taken.client.bytes.Add(taken.bytes)
	if taken.lists {
		taken.client.lists.Add(1)
	}
	return taken, nil
}

func (s *slot) free() {
	s.client.calls.Add(-1)
	s.client.bytes.Add(-s.bytes)
	if s.lists {
		s.client.lists.Add(-1)
	}
	s.gate.leave()
}

// listsSessions reports whether the size of a method's reply grows with the number of sessions.
func listsSessions(member string) bool {
	switch member {
	case "GetManagedObjects", "ListSessions", "ListSessionsEx", "ListStrays":
		return true
	}
	return false
}

// clientOf returns the client that sent the call.
func (s *Server) clientOf(msg *dbus.Message) *client {
	sender, _ := msg.Headers[dbus.FieldSender].Value().(string)
	c := s.clients[sender]
	if c == nil {
		if len(s.clients) > maxClients {
			maps.DeleteFunc(s.clients, func(_ string, c *client) bool { return c.calls.Load() == 0 })
		}
		c = &client{}
		s.clients[sender] = c
	}
	return c
}
