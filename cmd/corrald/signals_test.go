package main

import (
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/dbusapi"
)

const propertiesChanged = "org.freedesktop.DBus.Properties.PropertiesChanged"

// signalLog records all signals received, in order. It is the dbus.SignalHandler of a connection:
// when a call returns, the signals received before its reply have been recorded.
type signalLog struct {
	mu   sync.Mutex
	all  []*dbus.Signal
	more chan struct{} // closed when the next signal arrives
}

func newSignalLog() *signalLog { return &signalLog{more: make(chan struct{})} }

// DeliverSignal implements dbus.SignalHandler.
func (l *signalLog) DeliverSignal(_, _ string, s *dbus.Signal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, s)
	close(l.more)
	l.more = make(chan struct{})
}

// mark returns the position after all signals received so far.
func (l *signalLog) mark() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all)
}

// since returns the signals after a mark, and a channel that is closed when the next one arrives.
func (l *signalLog) since(mark int) ([]*dbus.Signal, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all[mark:len(l.all):len(l.all)], l.more
}

// await waits for a signal after the mark that is accepts, and returns it.
func (d *corrald) await(t *testing.T, mark int, what string, is func(*dbus.Signal) bool) *dbus.Signal {
	t.Helper()
	for deadline := time.After(patience); ; {
		signals, more := d.signals.since(mark)
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

// change is the content of a SessionStateChanged.
type change struct{ id, before, after string }

// stateChange parses a SessionStateChanged; ok is false for any other signal.
func stateChange(s *dbus.Signal) (c change, ok bool) {
	if s.Name != dbusapi.ManagerInterface+".SessionStateChanged" {
		return c, false
	}
	var path dbus.ObjectPath
	var details map[string]dbus.Variant
	err := dbus.Store(s.Body, &c.id, &path, &c.before, &c.after, &details)
	return c, err == nil && path == dbusapi.SessionPath(c.id)
}

// changedState returns the State in a session's PropertiesChanged; ok is false for any other
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
