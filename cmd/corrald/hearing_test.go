package main

import (
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/dbusapi"
)

const propertiesChanged = "org.freedesktop.DBus.Properties.PropertiesChanged"

// hearing keeps every signal that came, in order.
type hearing struct {
	mu   sync.Mutex
	all  []*dbus.Signal
	more chan struct{} // closed with the next one
}

func newHearing() *hearing { return &hearing{more: make(chan struct{})} }

func (h *hearing) take(signals <-chan *dbus.Signal) {
	for s := range signals {
		h.mu.Lock()
		h.all = append(h.all, s)
		close(h.more)
		h.more = make(chan struct{})
		h.mu.Unlock()
	}
}

// mark is a place in the order of signals: after all that have come.
func (h *hearing) mark() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.all)
}

// since returns the signals after a mark, and what is closed once there is another.
func (h *hearing) since(mark int) ([]*dbus.Signal, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.all[mark:len(h.all):len(h.all)], h.more
}

// await waits for a signal that came after the mark, and returns it.
func (d *corrald) await(t *testing.T, mark int, what string, is func(*dbus.Signal) bool) *dbus.Signal {
	t.Helper()
	for deadline := time.After(patience); ; {
		signals, more := d.heard.since(mark)
		for _, s := range signals {
			if is(s) {
				return s
			}
		}
		mark += len(signals)
		select {
		case <-more:
		case <-deadline:
			t.Fatalf("no signal of %s within %v", what, patience)
		}
	}
}

// change is what SessionStateChanged tells.
type change struct{ id, before, after string }

// stateChange reads a SessionStateChanged; ok is false for any other signal.
func stateChange(s *dbus.Signal) (c change, ok bool) {
	if s.Name != dbusapi.ManagerInterface+".SessionStateChanged" {
		return c, false
	}
	var path dbus.ObjectPath
	var details map[string]dbus.Variant
	err := dbus.Store(s.Body, &c.id, &path, &c.before, &c.after, &details)
	return c, err == nil && path == dbusapi.SessionPath(c.id)
}

// changedState reads the State that a session's PropertiesChanged tells; ok is false for any other
// signal.
func changedState(s *dbus.Signal) (id, state string, ok bool) {
	id, ok = dbusapi.SessionID(s.Path)
	if !ok || s.Name != propertiesChanged || len(s.Body) != 3 || s.Body[0] != dbusapi.SessionInterface {
		return "", "", false
	}
	changed, _ := s.Body[1].(map[string]dbus.Variant)
	state, ok = changed["State"].Value().(string)
	return id, state, ok
}
