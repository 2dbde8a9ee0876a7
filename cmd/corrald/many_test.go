package main

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
)

const (
	crowd  = 100
	visits = 50
)

// TestExits_HundredAtOnceArePublished: none of the exits is lost or mixed up with another, and each
// is told once, the properties before the change.
func TestExits_HundredAtOnceArePublished(t *testing.T) {
	d := startDaemon(t)
	gate := d.dir + "/gate"
	require.NoError(t, syscall.Mkfifo(gate, 0o600))
	id := func(n int) string { return fmt.Sprintf("many-%d", n) }

	mark := d.heard.mark()
	calls := make([]*dbus.Call, crowd)
	for n := range calls {
		calls[n] = d.bus.Object(dbusapi.BusName, dbusapi.ManagerPath).Go(dbusapi.ManagerInterface+".CreateSession", 0, make(chan *dbus.Call, 1),
			"command", spec{
				"Id": id(n), "WorkingDirectory": d.dir,
				// The shell's open of the gate waits until somebody writes to it.
				"Command": []string{"sh", "-c", fmt.Sprintf(`read -r line <"$0"; exit %d`, n), gate},
			}.variants())
	}
	for n, call := range calls {
		require.NoError(t, (<-call.Done).Err, id(n))
	}
	for n := range crowd {
		d.subject(t, id(n)).is(outcome{"running", "", 0, 0, "", "active"})
	}
	assert.Equal(t, tale{"starting", "running"}, d.oneTale(t, mark, id, 2))
	assert.Equal(t, crowd, d.count(t, "NRunning"))

	mark = d.heard.mark()
	writer, err := os.OpenFile(gate, os.O_WRONLY, 0) // all that wait for it go on
	require.NoError(t, err)
	require.NoError(t, writer.Close())
	for n := range crowd {
		want := outcome{"failed", "exit-code", 1, n, fmt.Sprintf("command exited with code %d", n), "error"}
		if n == 0 {
			want = outcome{"completed", "success", 1, 0, "", "active"}
		}
		d.subject(t, id(n)).ends(want)
	}
	d.tales(t, mark, id, 1)
	assert.Equal(t, 0, d.count(t, "NRunning"))
	assert.Equal(t, crowd-1, d.count(t, "NFailed"))
}

// tale is what one session was told to be, in order.
type tale []string

// oneTale is tales for sessions of which all have the same one.
func (d *corrald) oneTale(t *testing.T, mark int, id func(int) string, want int) tale {
	t.Helper()
	all := d.tales(t, mark, id, want)
	for n := range crowd {
		require.Equal(t, all[id(0)], all[id(n)], "session %s", id(n))
	}
	return all[id(0)]
}

// tales collects the states that were told of each session since the mark, and checks that each of
// them was told by one PropertiesChanged and then by one SessionStateChanged. The first state of a
// session is told by InterfacesAdded.
func (d *corrald) tales(t *testing.T, mark int, id func(int) string, want int) map[string]tale {
	t.Helper()
	properties, changes := map[string]tale{}, map[string]tale{}
	signals, _ := d.heard.since(mark)
	for _, s := range signals {
		if added, state, ok := addedState(s); ok {
			properties[added] = append(properties[added], state)
			changes[added] = append(changes[added], state)
		}
		if changed, state, ok := changedState(s); ok {
			properties[changed] = append(properties[changed], state)
		}
		if c, ok := stateChange(s); ok {
			changes[c.id] = append(changes[c.id], c.after)
			assert.Equal(t, properties[c.id], changes[c.id], "session %s: PropertiesChanged comes first", c.id)
		}
	}
	for n := range crowd {
		require.Len(t, properties[id(n)], want, "session %s: PropertiesChanged with State", id(n))
		require.Equal(t, properties[id(n)], changes[id(n)], "session %s", id(n))
	}
	return properties
}

// addedState reads the State that InterfacesAdded tells of a new session.
func addedState(s *dbus.Signal) (id, state string, ok bool) {
	var path dbus.ObjectPath
	var interfaces map[string]map[string]dbus.Variant
	if s.Name != "org.freedesktop.DBus.ObjectManager.InterfacesAdded" || dbus.Store(s.Body, &path, &interfaces) != nil {
		return "", "", false
	}
	id, ok = dbusapi.SessionID(path)
	state, _ = interfaces[dbusapi.SessionInterface]["State"].Value().(string)
	return id, state, ok
}

// subject returns a session that is there.
func (d *corrald) subject(t *testing.T, id string) *subject { return &subject{d, t, id} }

// count returns one of the Manager's counts.
func (d *corrald) count(t *testing.T, property string) int {
	t.Helper()
	var value dbus.Variant
	require.NoError(t, d.call(dbusapi.ManagerPath, "org.freedesktop.DBus.Properties.Get", []any{dbusapi.ManagerInterface, property}, &value))
	return facts{property: value}.number(property)
}

// TestIntrospection_WhileSessionsComeAndGo: clients that introspect everything, again and again,
// while sessions come and go, take nothing down.
func TestIntrospection_WhileSessionsComeAndGo(t *testing.T) {
	d := startDaemon(t)
	stop := make(chan struct{})
	var curious sync.WaitGroup
	looks := make([]int, 2)
	for n := range looks {
		curious.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				for _, path := range d.tree(t, "/") {
					_ = d.call(path, "org.freedesktop.DBus.Introspectable.Introspect", nil) // a session may be gone by now
					_ = d.call(path, "org.freedesktop.DBus.Properties.GetAll", []any{dbusapi.SessionInterface})
				}
				looks[n]++
			}
		})
	}
	var visitors sync.WaitGroup
	failed := make(chan error, visits)
	for n := range visits {
		visitors.Go(func() {
			id := fmt.Sprintf("visitor-%d", n)
			if _, err := d.tryCreate(t, id, spec{"Command": []string{"sleep", "1000"}}); err != nil {
				failed <- fmt.Errorf("create %s: %w", id, err)
				return
			}
			if err := d.manager("RemoveSession", []any{id, dbusapi.RemoveForce}); err != nil {
				failed <- fmt.Errorf("remove %s: %w", id, err)
			}
		})
	}
	visitors.Wait()
	close(stop)
	curious.Wait()
	close(failed)
	for err := range failed {
		t.Error(err)
	}
	assert.Empty(t, d.ids(t))
	assert.Len(t, d.tree(t, dbusapi.SessionsPath), 1)
	for n, count := range looks {
		assert.NotZero(t, count, "client %d has seen nothing", n)
	}
}
