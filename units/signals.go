package units

import (
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/internal/proc"
)

// run owns the watches: it reads the signals and lets calls in through the door, one after the
// other. A signal that systemd did not send is dropped.
func (m *Manager) run(signals <-chan *dbus.Signal, systemd *bus.Owner) {
	defer close(m.events)
	defer close(m.closed)
	ws := &watches{units: map[string]*watch{}, byPath: map[dbus.ObjectPath]*watch{}, unknown: map[string]bool{}, jobs: map[chan struct{}]bool{}}
	for {
		select {
		case sig, ok := <-signals:
			if !ok {
				return
			}
			switch {
			case systemd.Update(sig):
				if systemd.UniqueName() != "" {
					// A systemd that was executed again still knows that we subscribed; one that was started anew
					// does not.
					m.conn.Object(systemdName, systemdPath).Go(managerIface+".Subscribe", dbus.FlagNoReplyExpected, nil)
					m.tell(Resync{}, ws)
				}
			case systemd.Sent(sig):
				for _, e := range ws.hear(sig) {
					m.tell(e, ws)
				}
			}
		case f := <-m.door:
			f(ws)
		}
	}
}

// tell hands an event over. Calls are let in meanwhile: the reader may be about to make one.
func (m *Manager) tell(e Event, ws *watches) {
	for {
		select {
		case m.events <- e:
			return
		case f := <-m.door:
			f(ws)
		}
	}
}

// hear turns a signal of systemd's into events. One that does not have the form it should is passed
// over.
func (ws *watches) hear(sig *dbus.Signal) []Event {
	switch sig.Name {
	case managerIface + ".JobRemoved":
		return ws.jobRemoved(sig.Body)
	case managerIface + ".UnitRemoved":
		return ws.unitRemoved(sig.Body)
	case managerIface + ".Reloading":
		if active, ok := first[bool](sig.Body); ok && !active {
			return []Event{Resync{}}
		}
	case propertiesIface + ".PropertiesChanged":
		if w := ws.byPath[sig.Path]; w != nil {
			return w.propertiesChanged(sig.Body)
		}
	case scopeIface + ".RequestStop":
		if w := ws.byPath[sig.Path]; w != nil {
			w.asked = true
			return []Event{StopRequested{w.name, w.id}}
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
	for ended := range ws.jobs {
		select {
		case ended <- struct{}{}:
		default:
		}
	}
	w := ws.units[name]
	if w == nil || w.armed {
		return nil
	}
	// The first PropertiesChanged of a new scope says inactive: only what comes from now on tells of
	// its end.
	w.armed = result == "done"
	select {
	case w.job <- result:
	default:
	}
	return nil
}

func (ws *watches) unitRemoved(body []any) []Event {
	name, _ := first[string](body)
	w := ws.units[name]
	if w == nil {
		return nil
	}
	return w.ended()
}

// ended tells of the scope's end, once, if the kernel agrees: systemd says of every unit that it is
// removed when it is reloaded, and may say of a scope that it is dead when it is not.
func (w *watch) ended() []Event {
	switch {
	case !w.armed || proc.IsPopulated(w.group):
		return nil
	case w.group == "": // the kernel cannot be asked
		return []Event{Resync{}}
	}
	w.armed = false
	return []Event{Ended{w.name, w.result, w.id}}
}

// propertiesChanged takes the scope's Result from the signal itself: a unit that is read after its
// end makes one up.
func (w *watch) propertiesChanged(body []any) []Event {
	if len(body) < 2 {
		return nil
	}
	changed, _ := body[1].(map[string]dbus.Variant)
	if result, ok := changed["Result"].Value().(string); ok {
		w.result = result
	}
	switch active, _ := changed["ActiveState"].Value().(string); active {
	case "inactive", "failed":
		return w.ended()
	case "deactivating":
		if w.armed && !w.asked { // who is asked is asked first
			w.asked = true
			return []Event{Stopping{w.name, Cause{w.result, told(changed["ActiveExitTimestampMonotonic"])}, w.id}}
		}
	}
	return nil
}

// tellTime is how long before systemd notes that a scope has left the state active its processes
// may have been told: it signals them first, and on a machine that has much to do others may run in
// between.
const tellTime = 250 * time.Millisecond

// told is when the processes of a scope were told to end at the earliest, by its
// ActiveExitTimestampMonotonic; 0 if that is unknown.
func told(timestamp dbus.Variant) time.Duration {
	usec, _ := timestamp.Value().(uint64)
	return max(time.Duration(usec)*time.Microsecond-tellTime, 0)
}

func first[T any](body []any) (T, bool) {
	var zero T
	if len(body) == 0 {
		return zero, false
	}
	v, ok := body[0].(T)
	return v, ok
}
