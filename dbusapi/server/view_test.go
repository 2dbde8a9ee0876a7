package server

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/testbed"
	"github.com/corrald/corral/supervisor"
)

// follower is a client that has a copy of everything and follows the signals, and holds every
// answer that it gets against it, in the order of the wire.
type follower struct {
	*dbus.Conn

	mu         sync.Mutex
	sessions   map[dbus.ObjectPath]map[string]dbus.Variant // nil before the first answer
	manager    map[string]dbus.Variant
	mismatches []string
	compared   int
	signals    chan struct{} // buffered: there was another
}

func follow(t *testing.T) *follower {
	t.Helper()
	f := &follower{signals: make(chan struct{}, 1)}
	var err error
	f.Conn, err = dbus.Connect(os.Getenv("DBUS_SESSION_BUS_ADDRESS"), dbus.WithIncomingInterceptor(f.receive))
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	require.NoError(t, f.AddMatchSignal(dbus.WithMatchSender(dbusapi.BusName)))
	return f
}

// record is run by the connection's reader, one message after the other.
func (f *follower) receive(msg *dbus.Message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	path, _ := msg.Headers[dbus.FieldPath].Value().(dbus.ObjectPath)
	switch {
	case msg.Type == dbus.TypeMethodReply && len(msg.Body) == 1:
		f.handleReply(msg.Body[0])
	case msg.Type == dbus.TypeSignal && strings.HasPrefix(string(path), string(dbusapi.ManagerPath)):
		if f.sessions != nil && f.manager != nil {
			f.handleSignal(path, member(msg), msg.Body)
		}
		select {
		case f.signals <- struct{}{}:
		default:
		}
	}
}

func (f *follower) handleReply(body any) {
	switch body := body.(type) {
	case map[dbus.ObjectPath]map[string]map[string]dbus.Variant:
		all := map[dbus.ObjectPath]map[string]dbus.Variant{}
		for path, interfaces := range body {
			all[path] = publishedProperties(interfaces[dbusapi.SessionInterface])
		}
		if f.sessions == nil {
			f.sessions = all
		}
		f.compare("sessions", f.sessions, all)
	case map[string]dbus.Variant:
		if f.manager == nil {
			f.manager = maps.Clone(body)
		}
		f.compare("manager", f.manager, body)
	}
}

// publishedProperties are the properties that a client can know by following signals.
func publishedProperties(p map[string]dbus.Variant) map[string]dbus.Variant {
	p = maps.Clone(p)
	for name := range unpublished {
		delete(p, name)
	}
	for name := range publishedWithoutValue {
		delete(p, name)
	}
	return p
}

func (f *follower) compare(what string, have, got any) {
	f.compared++
	if !assert.ObjectsAreEqual(have, got) {
		f.mismatches = append(f.mismatches, fmt.Sprintf("%s: by signals %v, by the answer %v", what, have, got))
	}
}

func (f *follower) handleSignal(path dbus.ObjectPath, member string, body []any) {
	switch member {
	case "InterfacesAdded":
		f.sessions[body[0].(dbus.ObjectPath)] = publishedProperties(body[1].(map[string]map[string]dbus.Variant)[dbusapi.SessionInterface])
	case "InterfacesRemoved":
		delete(f.sessions, body[0].(dbus.ObjectPath))
	case "PropertiesChanged":
		to := f.manager
		if path != dbusapi.ManagerPath {
			to = f.sessions[path]
		}
		maps.Copy(to, body[1].(map[string]dbus.Variant))
	case "SessionNew", "SessionStateChanged", "SessionRemoved":
		session, there := f.sessions[body[1].(dbus.ObjectPath)]
		f.compare(member+": is it there?", member != "SessionRemoved", there)
		if member == "SessionStateChanged" {
			f.compare("the state that was told", session["State"].Value(), body[3])
		}
		f.compare("what the signals say of the counts at "+member, f.counts(), maps.Collect(func(yield func(string, any) bool) {
			for _, name := range []string{"NSessions", "NRunning", "NFailed", "NStale", "NSuspended"} {
				if !yield(name, f.manager[name].Value()) {
					return
				}
			}
		}))
	}
}

// counts counts the sessions in the copy.
func (f *follower) counts() map[string]any {
	n := map[string]uint32{}
	for _, p := range f.sessions {
		state := p["State"].Value().(string)
		if state != "archived" {
			n["NSessions"]++
			n["N"+strings.ToUpper(state[:1])+state[1:]]++
		}
	}
	counts := map[string]any{}
	for _, name := range []string{"NSessions", "NRunning", "NFailed", "NStale", "NSuspended"} {
		counts[name] = n[name]
	}
	return counts
}

// requestAll asks for everything, and does not wait for the answers.
func (f *follower) requestAll(done chan *dbus.Call) {
	object := f.Object(dbusapi.BusName, dbusapi.ManagerPath)
	object.Go(objectManagerInterface+".GetManagedObjects", 0, done)
	object.Go(propertiesInterface+".GetAll", 0, done, dbusapi.ManagerInterface)
}

// TestView_AgreesWithTheSignals: whoever follows the signals is never wrong, at whichever moment it
// looks.
func TestView_AgreesWithTheSignals(t *testing.T) {
	s := serve(t)
	s.create(t, "first", true)
	f := follow(t)
	done := make(chan *dbus.Call, 4096)
	f.requestAll(done)
	for range 2 {
		require.NoError(t, testbed.Receive(t, done, "first answer").Err)
	}
	var busy sync.WaitGroup
	for worker := range 4 {
		busy.Go(func() {
			random := rand.New(rand.NewPCG(uint64(worker), 1))
			for n := range 12 {
				s.changeSession(t, random, fmt.Sprintf("s%d-%d", worker, n))
			}
		})
	}
	over := make(chan struct{})
	go func() { busy.Wait(); close(over) }()
	asked := 0
	for reading := true; reading; {
		select {
		case <-f.signals:
			for ; asked > 2*maxLists-4; asked-- {
				require.NoError(t, testbed.Receive(t, done, "answer").Err)
			}
			f.requestAll(done)
			asked += 2
		case <-over:
			reading = false
		}
	}
	f.requestAll(done)
	for range asked + 2 {
		require.NoError(t, testbed.Receive(t, done, "answer").Err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	assert.Empty(t, f.mismatches[:min(len(f.mismatches), 3)], "%d of %d", len(f.mismatches), f.compared)
	assert.Greater(t, f.compared, 200)
	assert.Len(t, f.sessions, 1+4*6)
}

// changeSession does something with a session of this name. Half of them stay.
func (s *served) changeSession(t *testing.T, random *rand.Rand, id string) {
	path := s.create(t, id, random.IntN(2) == 0)
	for _, do := range random.Perm(3) {
		switch do {
		case 0:
			assert.NoError(t, s.call(path, dbusapi.SessionInterface+".SetDescription", id).Err)
		case 1:
			assert.NoError(t, s.call(path, dbusapi.SessionInterface+".SetLabels", map[string]string{"a": id}).Err)
		case 2:
			_ = s.call(path, dbusapi.SessionInterface+".Start").Err // it may run
		}
	}
	if (id[len(id)-1]-'0')%2 == 1 {
		s.endScope(t, id)
		assert.NoError(t, s.manager("RemoveSession", id, dbusapi.RemoveForce).Err)
	}
}

// endScope has the scope of a session be gone, if there is one.
func (s *served) endScope(t *testing.T, id string) {
	t.Helper()
	n, err := s.sup.Session(id)
	require.NoError(t, err)
	s.sup.ScopeEnded(n.Unit, "", "success")
}

func snap(id, state string) *supervisor.Snapshot {
	return &supervisor.Snapshot{ID: id, State: state, Created: time.Unix(int64(id[0]), 0)}
}

func TestView_SortsByCreationThenID(t *testing.T) {
	v := &view{byID: map[string]*supervisor.Snapshot{}}
	a, b, c, d := snap("a", "created"), snap("b", "created"), snap("c", "created"), snap("c2", "created")
	for _, n := range []*supervisor.Snapshot{d, b, c, a} {
		v.apply(supervisor.Change{New: n})
	}
	assert.Equal(t, []*supervisor.Snapshot{a, b, c, d}, v.sessions, "by age, then by id")
	after := snap("b", "running")
	v.apply(supervisor.Change{Old: b, New: after})
	v.apply(supervisor.Change{Old: c})
	assert.Equal(t, []*supervisor.Snapshot{a, after, d}, v.sessions)
	assert.Equal(t, map[string]*supervisor.Snapshot{"a": a, "b": after, "c2": d}, v.byID)
}

// TestMerge_CombinesPendingBatches: however long it does not read, no more waits than there are
// sessions, and every call is answered.
func TestMerge_CombinesPendingBatches(t *testing.T) {
	states := []*supervisor.Snapshot{snap("a", "created"), snap("a", "starting"), snap("a", "running"), snap("a", "failed")}
	other, again := snap("b", "created"), snap("a", "created")
	var done []string
	after := func(what string) []func() { return []func(){func() { done = append(done, what) }} }
	merged := merge([]batch{
		{changes: []supervisor.Change{{New: snap("old", "stopped")}}, initial: true},
		{changes: []supervisor.Change{{New: states[0]}}, after: after("1")},
		{changes: []supervisor.Change{{Old: states[0], New: states[1]}, {New: other}}},
		{reads: []func(*view){func(*view) {}}},
		{changes: []supervisor.Change{{Old: states[1], New: states[2]}}, manager: properties{"Lingering": true}},
		{changes: []supervisor.Change{{Old: states[2], New: states[3]}}, manager: properties{"Lingering": false}, after: after("2")},
		{changes: []supervisor.Change{{Old: states[3]}}, reads: []func(*view){func(*view) {}}},
		{changes: []supervisor.Change{{New: again}}},
	})
	require.Len(t, merged, 2)
	assert.True(t, merged[0].initial)
	assert.Equal(t, []supervisor.Change{{New: states[3]}, {New: other}, {Old: states[3]}, {New: again}}, merged[1].changes)
	assert.Equal(t, properties{"Lingering": false}, merged[1].manager)
	assert.Len(t, merged[1].reads, 2)
	for _, f := range merged[1].after {
		f()
	}
	assert.Equal(t, []string{"1", "2"}, done)
	running := snap("a", "running")
	assert.Equal(t, []supervisor.Change{{Old: states[0], New: running}},
		merge([]batch{{changes: []supervisor.Change{{Old: states[0], New: states[1]}}}, {changes: []supervisor.Change{{Old: states[1], New: running}}}})[0].changes)
}
