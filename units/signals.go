package units

import (
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/internal/proc"
)

// run is the event loop. It owns the watches, reads the signals, and runs the functions that
// callers post to the mailbox, one at a time. It drops signals that systemd did not send.
func (m *Manager) run(signals <-chan *dbus.Signal, systemd *bus.Owner) {
	defer close(m.events)
	defer close(m.closed)
	ws := &watches{
		units:       map[string]*watch{},
		byPath:      map[dbus.ObjectPath]*watch{},
		unsupported: map[string]bool{},
		jobWaiters:  map[chan struct{}]bool{},
	}
	for {
		select {
		case sig, ok := <-signals:
			if !ok {
				return
			}
			switch {
			case systemd.Update(sig):
				if systemd.UniqueName() != "" {
					// systemd keeps our subscription when it is reexecuted, but not when it is restarted.
					bus.Systemd(m.conn).Go(bus.SystemdManager+".Subscribe", dbus.FlagNoReplyExpected, nil)
					m.send(Resync{}, ws)
				}
			case systemd.Sent(sig):
				for _, e := range ws.parseSignal(sig) {
					m.send(e, ws)
				}
			}
		case f := <-m.mailbox:
			f(ws)
		}
	}
}

// send delivers an event to the reader of Events. Meanwhile it runs posted functions, since the
// reader may be waiting for a call of its own.
func (m *Manager) send(e Event, ws *watches) {
	for {
		select {
		case m.events <- e:
			return
		case f := <-m.mailbox:
			f(ws)
		}
	}
}

// parseSignal converts a signal of systemd into events. It ignores signals with an unexpected
// signature.
func (ws *watches) parseSignal(sig *dbus.Signal) []Event {
	switch sig.Name {
	case bus.SystemdManager + ".JobRemoved":
		return ws.jobRemoved(sig.Body)
	case bus.SystemdManager + ".UnitRemoved":
		name, _ := bus.FirstArg[string](sig.Body)
		if w := ws.units[name]; w != nil {
			return w.endEvents()
		}
	case bus.SystemdManager + ".Reloading":
		if active, ok := bus.FirstArg[bool](sig.Body); ok && !active {
			return []Event{Resync{}}
		}
	case bus.Properties + ".PropertiesChanged":
		if w := ws.byPath[sig.Path]; w != nil {
			return w.propertiesChanged(sig.Body)
		}
	case scopeIface + ".RequestStop":
		if w := ws.byPath[sig.Path]; w != nil {
			w.stopReported = true
			return []Event{StopRequested{w.name, w.invocationID}}
		}
	}
	return nil
}

func (ws *watches) jobRemoved(body []any) []Event {
	if len(body) != 4 {
		return nil
	}
	name, _ := body[2].(string)
	result, _ := body[3].(string)
	for waiter := range ws.jobWaiters {
		select {
		case waiter <- struct{}{}:
		default:
		}
	}
	w := ws.units[name]
	if w == nil || w.running {
		return nil
	}
	// The first PropertiesChanged of a new scope reports inactive. The scope has ended only if a
	// signal after the end of its start job reports inactive.
	w.running = result == "done"
	select {
	case w.startResult <- result:
	default:
	}
	return nil
}

// endEvents returns the event for the end of the scope, once, if the kernel confirms that it has no
// processes: systemd emits UnitRemoved for every unit during a reload, and may report a scope as
// dead that is not.
func (w *watch) endEvents() []Event {
	switch {
	case !w.running:
		return nil
	case w.cgroup == "": // without the path, the kernel cannot be asked
		return []Event{Resync{}}
	case proc.IsPopulated(w.cgroup):
		return nil
	}
	w.running = false
	return []Event{Ended{w.name, w.result, w.invocationID}}
}

// propertiesChanged takes the scope's Result from the signal itself. Reading the property later
// does not work: for a unit that has ended, systemd returns a default.
func (w *watch) propertiesChanged(body []any) []Event {
	if len(body) < 2 {
		return nil
	}
	changed, _ := body[1].(map[string]dbus.Variant)
	if result, ok := changed[propertyResult].Value().(string); ok {
		w.result = result
	}
	switch active, _ := changed[propertyActiveState].Value().(string); active {
	case "inactive", "failed":
		return w.endEvents()
	case "deactivating":
		// systemd sends RequestStop, if at all, before it enters this state.
		if w.running && !w.stopReported {
			w.stopReported = true
			cause := Cause{w.result, earliestSignal(changed[propertyActiveExited].Value())}
			return []Event{Stopping{w.name, cause, w.invocationID}}
		}
	}
	return nil
}

// signalSlack is how long before systemd's timestamp of leaving the active state the processes may
// have received its signal: systemd sends the signal first, and on a busy machine other processes
// may run in between.
const signalSlack = 250 * time.Millisecond

// earliestSignal returns the earliest time at which systemd may have signalled the processes of a
// scope, from its ActiveExitTimestampMonotonic; 0 if that is unknown.
func earliestSignal(timestamp any) time.Duration {
	usec, _ := timestamp.(uint64)
	return max(time.Duration(usec)*time.Microsecond-signalSlack, 0)
}
