package main

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"

	"github.com/fsnotify/fsnotify"
	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/exitstatus"
)

const (
	crowdSize    = 100
	visitorCount = 50
)

// TestExits_HundredAtOnceArePublished checks that no exit is lost or attributed to another session,
// and that each is published once, the properties before the state change.
func TestExits_HundredAtOnceArePublished(t *testing.T) {
	d := startDaemon(t)
	gate := d.dir + "/gate"
	require.NoError(t, syscall.Mkfifo(gate, 0o600))
	id := func(n int) string { return fmt.Sprintf("many-%d", n) }

	mark := d.signals.mark()
	calls := make([]*dbus.Call, crowdSize)
	for n := range calls {
		calls[n] = d.bus.Object(dbusapi.BusName, dbusapi.ManagerPath).
			Go(dbusapi.ManagerInterface+".CreateSession", 0, make(chan *dbus.Call, 1),
				"command", spec{
					"Id": id(n), "WorkingDirectory": d.dir,
					// The shell's open of the gate blocks until the test opens it for writing.
					"Command": []string{"sh", "-c", fmt.Sprintf(`read -r line <"$0"; exit %d`, n), gate},
				}.variants())
	}
	for n, call := range calls {
		require.NoError(t, (<-call.Done).Err, id(n))
	}
	for n := range crowdSize {
		d.session(t, id(n)).assertOutcome(outcome{"running", "", 0, 0, "", "active"})
	}
	assert.Equal(t, stateSequence{"starting", "running"}, d.commonStates(t, mark, id, 2))
	assert.Equal(t, crowdSize, d.count(t, "NRunning"))

	mark = d.signals.mark()
	writer, err := os.OpenFile(gate, os.O_WRONLY, 0) // all agents that wait for it continue
	require.NoError(t, err)
	require.NoError(t, writer.Close())
	for n := range crowdSize {
		want := outcome{"failed", "exit-code", 1, n, fmt.Sprintf("command exited with code %d", n), "error"}
		if n == 0 {
			want = outcome{"completed", "success", 1, 0, "", "active"}
		}
		d.session(t, id(n)).waitOutcome(want)
	}
	d.publishedStates(t, mark, id, 1)
	assert.Equal(t, 0, d.count(t, "NRunning"))
	assert.Equal(t, crowdSize-1, d.count(t, "NFailed"))
}

// TestExit_IsNotifiedWhereNothingElseIsWritten checks that nothing is written to the directory in
// which the daemon watches for the record of the exit, while the agent prints.
func TestExit_IsNotifiedWhereNothingElseIsWritten(t *testing.T) {
	d := startDaemon(t)
	gate := d.dir + "/gate"
	require.NoError(t, syscall.Mkfifo(gate, 0o600))
	pass := func() {
		writer, err := os.OpenFile(gate, os.O_WRONLY, 0) // the agent waits for it
		require.NoError(t, err)
		require.NoError(t, writer.Close())
	}
	s := d.run(t, "shop", `
		read -r line <`+gate+`
		i=0; while [ $i -lt 100 ]; do i=$((i+1)); echo "line $i"; done
		read -r line <`+gate+`
		exit 9`)
	s.waitState("running")
	watcher, err := fsnotify.NewWatcher()
	require.NoError(t, err)
	defer func() { _ = watcher.Close() }()
	require.NoError(t, watcher.Add(d.runtimeDir("shop")))

	pass()
	waitFile(t, d.stateDir("shop")+"/output.log", "line 100")
	require.NoError(t, os.Chmod(d.runtimeDir("shop"), 0o700))
	assert.Equal(t, fsnotify.Event{Name: d.runtimeDir("shop"), Op: fsnotify.Chmod}, <-watcher.Events,
		"there is no earlier event")

	pass()
	for ev := range watcher.Events {
		if ev.Has(fsnotify.Create) {
			assert.Equal(t, d.runtimeDir("shop")+"/"+exitstatus.FileName, ev.Name)
			break
		}
	}
	s.waitOutcome(outcome{"failed", "exit-code", 1, 9, "command exited with code 9", "error"})
}

// stateSequence is the sequence of states published for a session.
type stateSequence []string

// commonStates is publishedStates for sessions that all have the same sequence.
func (d *corrald) commonStates(t *testing.T, mark int, id func(int) string, want int) stateSequence {
	t.Helper()
	all := d.publishedStates(t, mark, id, want)
	for n := range crowdSize {
		require.Equal(t, all[id(0)], all[id(n)], "session %s", id(n))
	}
	return all[id(0)]
}

// publishedStates returns the states published for each session since the mark. It checks that each
// was published by one PropertiesChanged, followed by one SessionStateChanged. InterfacesAdded
// publishes the first state of a session.
func (d *corrald) publishedStates(t *testing.T, mark int, id func(int) string, want int) map[string]stateSequence {
	t.Helper()
	published, changes := map[string]stateSequence{}, map[string]stateSequence{}
	signals, _ := d.signals.since(mark)
	for _, s := range signals {
		if added, state, ok := addedState(s); ok {
			published[added] = append(published[added], state)
			changes[added] = append(changes[added], state)
		}
		if changed, state, ok := changedState(s); ok {
			published[changed] = append(published[changed], state)
		}
		if c, ok := stateChange(s); ok {
			changes[c.id] = append(changes[c.id], c.after)
			assert.Equal(t, published[c.id], changes[c.id], "session %s: PropertiesChanged comes first", c.id)
		}
	}
	for n := range crowdSize {
		require.Len(t, published[id(n)], want, "session %s: PropertiesChanged with State", id(n))
		require.Equal(t, published[id(n)], changes[id(n)], "session %s", id(n))
	}
	return published
}

// addedState returns the State in the InterfacesAdded of a new session.
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

// session returns the session with this id, which need not exist.
func (d *corrald) session(t *testing.T, id string) *testSession { return &testSession{d, t, id} }

// count returns one of the Manager's counters.
func (d *corrald) count(t *testing.T, property string) int {
	t.Helper()
	var value dbus.Variant
	require.NoError(t, d.call(dbusapi.ManagerPath, "org.freedesktop.DBus.Properties.Get",
		[]any{dbusapi.ManagerInterface, property}, &value))
	return properties{property: value}.number(property)
}

// TestIntrospection_WhileSessionsComeAndGo checks that clients that introspect all objects in a
// loop, while sessions are created and removed, do not crash the daemon.
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
					// the session may have been removed by now
					_ = d.call(path, "org.freedesktop.DBus.Introspectable.Introspect", nil)
					_ = d.call(path, "org.freedesktop.DBus.Properties.GetAll", []any{dbusapi.SessionInterface})
				}
				looks[n]++
			}
		})
	}
	var creators sync.WaitGroup
	failed := make(chan error, visitorCount)
	for n := range visitorCount {
		creators.Go(func() {
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
	creators.Wait()
	close(stop)
	curious.Wait()
	close(failed)
	for err := range failed {
		t.Error(err)
	}
	assert.Empty(t, d.ids(t))
	assert.Len(t, d.tree(t, dbusapi.SessionsPath), 1)
	for n, count := range looks {
		assert.NotZero(t, count, "client %d has introspected nothing", n)
	}
}
