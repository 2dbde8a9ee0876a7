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
	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/testbed"
	"github.com/corrald/corral/supervisor"
)

// follower is a client that keeps a copy of all state, updates it with the signals, and compares
// each reply with it in the order of arrival.
type follower struct {
	*dbus.Conn

	mu         sync.Mutex
	sessions   map[dbus.ObjectPath]map[string]dbus.Variant // nil before the first reply
	manager    map[string]dbus.Variant
	mismatches []string
	compared   int
	signals    chan struct{} // receives an element after each signal, unless there is one
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

// receive is called with each message by the goroutine that reads from the connection.
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

// publishedProperties returns the properties that a client knows if it follows the signals.
func publishedProperties(p map[string]dbus.Variant) map[string]dbus.Variant {
	p = maps.Clone(p)
	for name := range p {
		if a := published[name]; a == dbusapi.NotAnnounced || a == dbusapi.AnnouncedWithoutValue {
			delete(p, name)
		}
	}
	return p
}

func (f *follower) compare(what string, have, got any) {
	f.compared++
	if !assert.ObjectsAreEqual(have, got) {
		f.mismatches = append(f.mismatches, fmt.Sprintf("%s: by signals %v, by the reply %v", what, have, got))
	}
}

func (f *follower) handleSignal(path dbus.ObjectPath, member string, body []any) {
	switch member {
	case "InterfacesAdded":
		interfaces := body[1].(map[string]map[string]dbus.Variant)
		f.sessions[body[0].(dbus.ObjectPath)] = publishedProperties(interfaces[dbusapi.SessionInterface])
	case "InterfacesRemoved":
		delete(f.sessions, body[0].(dbus.ObjectPath))
	case "PropertiesChanged":
		to := f.manager
		if path != dbusapi.ManagerPath {
			to = f.sessions[path]
		}
		maps.Copy(to, body[1].(map[string]dbus.Variant))
	case "SessionNew", "SessionStateChanged", "SessionRemoved":
		session, exists := f.sessions[body[1].(dbus.ObjectPath)]
		f.compare(member+": the session exists", member != "SessionRemoved", exists)
		if member == "SessionStateChanged" {
			f.compare("the state in the signal", session["State"].Value(), body[3])
		}
		published := map[string]any{}
		for _, name := range countNames {
			published[name] = f.manager[name].Value()
		}
		f.compare("the counts in the signals before "+member, f.counts(), published)
	}
}

// countNames are the Manager's counts that the follower checks.
var countNames = []string{"NSessions", "NRunning", "NFailed", "NStale", "NSuspended"}

// counts returns the Manager's counts that follow from the sessions in the copy.
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
	for _, name := range countNames {
		counts[name] = n[name]
	}
	return counts
}

// requestAll requests all state and does not wait for the replies.
func (f *follower) requestAll(done chan *dbus.Call) {
	object := f.Object(dbusapi.BusName, dbusapi.ManagerPath)
	object.Go(objectManagerInterface+".GetManagedObjects", 0, done)
	object.Go(propertiesInterface+".GetAll", 0, done, dbusapi.ManagerInterface)
}

// TestView_AgreesWithTheSignals: a client that follows the signals is correct at any moment.
func TestView_AgreesWithTheSignals(t *testing.T) {
	s := serve(t)
	s.create(t, "first", true)
	f := follow(t)
	done := make(chan *dbus.Call, 4096)
	f.requestAll(done)
	for range 2 {
		require.NoError(t, testbed.Receive(t, done, "first reply").Err)
	}
	var workers sync.WaitGroup
	for worker := range 4 {
		workers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(worker), 1))
			for n := range 12 {
				s.changeSession(t, random, fmt.Sprintf("s%d-%d", worker, n))
			}
		})
	}
	finished := make(chan struct{})
	go func() { workers.Wait(); close(finished) }()
	pending := 0
	for reading := true; reading; {
		select {
		case <-f.signals:
			for ; pending > 2*maxLists-4; pending-- {
				require.NoError(t, testbed.Receive(t, done, "reply").Err)
			}
			f.requestAll(done)
			pending += 2
		case <-finished:
			reading = false
		}
	}
	f.requestAll(done)
	for range pending + 2 {
		require.NoError(t, testbed.Receive(t, done, "reply").Err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	assert.Empty(t, f.mismatches[:min(len(f.mismatches), 3)], "%d of %d", len(f.mismatches), f.compared)
	assert.Greater(t, f.compared, 200)
	assert.Len(t, f.sessions, 1+4*6)
}

// changeSession creates a session with this id and changes it in random order. It removes half of
// the sessions again.
func (s *served) changeSession(t *testing.T, random *rand.Rand, id string) {
	path := s.create(t, id, random.IntN(2) == 0)
	for _, do := range random.Perm(3) {
		switch do {
		case 0:
			assert.NoError(t, s.call(path, dbusapi.SessionInterface+".SetDescription", id).Err)
		case 1:
			assert.NoError(t, s.call(path, dbusapi.SessionInterface+".SetLabels", map[string]string{"a": id}).Err)
		case 2:
			_ = s.call(path, dbusapi.SessionInterface+".Start").Err // it fails if the session is running
		}
	}
	if (id[len(id)-1]-'0')%2 == 1 {
		s.endScope(t, id)
		assert.NoError(t, s.manager("RemoveSession", id, dbusapi.RemoveForce).Err)
	}
}

// endScope makes the scope of a session disappear, if there is one.
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
	v := newView()
	a, b, c, d := snap("a", "created"), snap("b", "created"), snap("c", "created"), snap("c2", "created")
	for _, n := range []*supervisor.Snapshot{d, b, c, a} {
		v.apply(supervisor.Change{New: n})
	}
	assert.Equal(t, []*supervisor.Snapshot{a, b, c, d}, v.sessions, "by creation time, then by id")
	after := snap("b", "running")
	v.apply(supervisor.Change{Old: b, New: after})
	v.apply(supervisor.Change{Old: c})
	assert.Equal(t, []*supervisor.Snapshot{a, after, d}, v.sessions)
	assert.Equal(t, map[string]*supervisor.Snapshot{"a": a, "b": after, "c2": d}, v.byID)
}

// TestMerge_CombinesPendingBatches: there is one change for each session, however long the bus
// accepts no signals, and every call is still answered.
func TestMerge_CombinesPendingBatches(t *testing.T) {
	states := []*supervisor.Snapshot{
		snap("a", "created"), snap("a", "starting"), snap("a", "running"), snap("a", "failed"),
	}
	other, again := snap("b", "created"), snap("a", "created")
	var done []string
	after := func(name string) []func() { return []func(){func() { done = append(done, name) }} }
	closed, unsaved := make(chan struct{}), &saveResult{}
	close(closed)
	merged := merge([]batch{
		{changes: []supervisor.Change{{New: snap("old", "stopped")}}, initial: true},
		{changes: []supervisor.Change{{New: states[0]}}, after: after("1")},
		{changes: []supervisor.Change{{Old: states[0], New: states[1]}, {New: other}}},
		{reads: []func(*view){func(*view) {}}},
		{changes: []supervisor.Change{{Old: states[1], New: states[2]}}, manager: properties{"Lingering": true}},
		{
			changes: []supervisor.Change{{Old: states[2], New: states[3]}},
			manager: properties{"Lingering": false},
			saved:   closed,
			result:  &saveResult{manager: properties{"Lingering": true}, after: after("2")},
		},
		{manager: properties{"Lingering": false}},
		{changes: []supervisor.Change{{Old: states[3]}}, reads: []func(*view){func(*view) {}}},
		{changes: []supervisor.Change{{New: again}}, saved: make(chan struct{}), result: unsaved},
	})
	require.Len(t, merged, 2)
	assert.True(t, merged[0].initial)
	assert.Equal(t, []supervisor.Change{{New: states[3]}, {New: other}, {Old: states[3]}, {New: again}}, merged[1].changes)
	assert.Equal(t, properties{"Lingering": false}, merged[1].manager)
	assert.Len(t, merged[1].reads, 2)
	*unsaved = saveResult{manager: properties{"Problems": "disk full"}, after: after("3")}
	complete := merged[1].withResult()
	assert.Equal(t, properties{"Lingering": false, "Problems": "disk full"}, complete.manager)
	for _, f := range complete.after {
		f()
	}
	assert.Equal(t, []string{"1", "2", "3"}, done)
	running := snap("a", "running")
	merged = merge([]batch{
		{changes: []supervisor.Change{{Old: states[0], New: states[1]}}},
		{changes: []supervisor.Change{{Old: states[1], New: running}}},
	})
	assert.Equal(t, []supervisor.Change{{Old: states[0], New: running}}, merged[0].changes)
}

// TestQueuePosition_FollowsTheTimes, and is read on demand.
func TestQueuePosition_FollowsTheTimes(t *testing.T) {
	s := serve(t)
	conf := config.Default()
	conf.MaxRunning = 1
	require.NoError(t, s.sup.Reload(conf, map[string]config.Agent{"command": {Name: "command"}}))
	for _, id := range []string{"z", "y", "x"} {
		s.create(t, id, true)
	}
	position := func(id string) (n uint32) {
		t.Helper()
		object := s.client.Object(dbusapi.BusName, dbusapi.SessionPath(id))
		require.NoError(t, object.StoreProperty(dbusapi.SessionInterface+".QueuePosition", &n))
		return n
	}
	assert.Equal(t, []uint32{0, 1, 2}, []uint32{position("z"), position("y"), position("x")})
	now := map[string]dbus.Variant{"Now": dbus.MakeVariant(true)}
	require.NoError(t, s.manager("BeginSession", "y", "start", now).Err)
	assert.Equal(t, []uint32{0, 0, 1}, []uint32{position("z"), position("y"), position("x")})
	require.NoError(t, s.manager("StopSession", "x", uint64(0)).Err)
	assert.Zero(t, position("x"))
	err := s.manager("BeginSession", "x", "start", map[string]dbus.Variant{"Now": dbus.MakeVariant("yes")}).Err
	assert.ErrorContains(t, err, `Now in the options has type "s", expected "b"`)
}
