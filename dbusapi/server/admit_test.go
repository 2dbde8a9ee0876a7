package server

import (
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/internal/testbed"
)

func connectClient(t *testing.T) *dbus.Conn {
	t.Helper()
	conn, err := dbus.Connect(os.Getenv("DBUS_SESSION_BUS_ADDRESS"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// TestAdmit_LimitsPendingCallsPerClient: more are refused at once, and only to that client. What is
// under way goes on.
func TestAdmit_LimitsPendingCallsPerClient(t *testing.T) {
	s := serve(t)
	path := s.create(t, "stubborn", true) // nothing ever ends in this world: each stop waits
	other := s.create(t, "other", false)
	flood := connectClient(t)
	const more = 100
	done := make(chan *dbus.Call, maxCalls+more)
	for range maxCalls + more {
		flood.Object(dbusapi.BusName, path).Go(dbusapi.SessionInterface+".Stop", 0, done, uint64(0))
	}
	for range more {
		err := testbed.Receive(t, done, "refusal").Err
		assert.Equal(t, dbusapi.ErrorName(dbusapi.LimitsExceeded), errorName(err), "%v", err)
	}
	require.NoError(t, s.call(other, dbusapi.SessionInterface+".SetDescription", "served").Err)
	before := runtime.NumGoroutine()
	for range more {
		flood.Object(dbusapi.BusName, path).Go(dbusapi.SessionInterface+".Stop", dbus.FlagNoReplyExpected, nil, uint64(0))
		flood.Object(dbusapi.BusName, path).Go(dbusapi.SessionInterface+".Stop", 0, done, uint64(0))
	}
	for range more {
		assert.Equal(t, dbusapi.ErrorName(dbusapi.LimitsExceeded), errorName(testbed.Receive(t, done, "refusal").Err))
	}
	testbed.Poll(t, "what was refused leaves nothing", func() bool { return runtime.NumGoroutine() <= before+more/10 })
	s.endScope(t, "stubborn")
	for range maxCalls {
		require.NoError(t, testbed.Receive(t, done, "answer").Err, "what was taken is done")
	}
	testbed.Poll(t, "it is let in again", func() bool {
		return flood.Object(dbusapi.BusName, other).Call(dbusapi.SessionInterface+".SetDescription", 0, "again").Err == nil
	})
	left := 0
	s.tickets.Range(func(any, any) bool { left++; return true })
	assert.Zero(t, left, "no ticket is left over")
}

// TestAdmit_LimitsPendingBytesPerClient: a client whose calls have more is refused at once, and
// only that client. What is under way goes on.
func TestAdmit_LimitsPendingBytesPerClient(t *testing.T) {
	s := serve(t)
	s.create(t, "shop", false)
	held, release := make(chan bool), make(chan bool)
	go s.readView(func(*view) { held <- true; <-release })
	testbed.Receive(t, held, "nothing is published any more")
	flood, text := connectClient(t), strings.Repeat("x", bus.MaxMessage/2)
	first, done := make(chan *dbus.Call, 1), make(chan *dbus.Call, 10)
	flood.Object(dbusapi.BusName, dbusapi.ManagerPath).Go(objectManagerInterface+".GetManagedObjects", 0, first)
	get := func(id string) {
		flood.Object(dbusapi.BusName, dbusapi.ManagerPath).Go(dbusapi.ManagerInterface+".GetSession", 0, done, id)
	}
	for range 6 { // they wait for the first one
		get(text)
	}
	for range 3 { // three of them and their headers have a little less than the limit
		err := testbed.Receive(t, done, "refusal").Err
		assert.Equal(t, dbusapi.ErrorName(dbusapi.LimitsExceeded), errorName(err))
		require.ErrorContains(t, err, "pending calls")
	}
	get("shop")
	err := connectClient(t).Object(dbusapi.BusName, dbusapi.ManagerPath).Call(dbusapi.ManagerInterface+".Nothing", 0, text).Err
	assert.Equal(t, dbusapi.ErrorName(dbusapi.UnknownMethod), errorName(err), "another client is served")
	require.Empty(t, done, "what was let in waits")
	close(release)
	require.NoError(t, testbed.Receive(t, first, "answer").Err)
	for range 3 {
		assert.Equal(t, dbusapi.ErrorName(dbusapi.NoSuchSession), errorName(testbed.Receive(t, done, "answer").Err))
	}
	require.NoError(t, testbed.Receive(t, done, "answer").Err, "a short one is served")
	get(text)
	assert.Equal(t, dbusapi.ErrorName(dbusapi.NoSuchSession), errorName(testbed.Receive(t, done, "answer").Err), "it is let in again")
}

// TestAdmit_LimitsListCallsPerClient: each answer is as large as there are sessions, and one who
// asks again before it has one does not need them all.
func TestAdmit_LimitsListCallsPerClient(t *testing.T) {
	s := serve(t)
	s.create(t, "shop", false)
	held, release := make(chan bool), make(chan bool)
	go s.readView(func(*view) { held <- true; <-release })
	testbed.Receive(t, held, "nothing is told any more")
	flood, other := connectClient(t), connectClient(t)
	const more = 10
	done, fine := make(chan *dbus.Call, maxLists+more), make(chan *dbus.Call, maxLists)
	for range maxLists + more {
		flood.Object(dbusapi.BusName, dbusapi.ManagerPath).Go(objectManagerInterface+".GetManagedObjects", 0, done)
	}
	for range more {
		err := testbed.Receive(t, done, "refusal").Err
		assert.Equal(t, dbusapi.ErrorName(dbusapi.LimitsExceeded), errorName(err), "%v", err)
	}
	for _, method := range []string{"ListSessions", "ListSessionsEx"} {
		err := flood.Object(dbusapi.BusName, dbusapi.ManagerPath).Call(dbusapi.ManagerInterface+"."+method, 0).Err
		assert.Equal(t, dbusapi.ErrorName(dbusapi.LimitsExceeded), errorName(err), "%v", err)
	}
	for range maxLists {
		other.Object(dbusapi.BusName, dbusapi.ManagerPath).Go(dbusapi.ManagerInterface+".ListSessions", 0, fine)
	}
	close(release)
	for range maxLists {
		require.NoError(t, testbed.Receive(t, done, "answer").Err)
		require.NoError(t, testbed.Receive(t, fine, "the other's answer").Err)
	}
	require.NoError(t, flood.Object(dbusapi.BusName, dbusapi.ManagerPath).Call(dbusapi.ManagerInterface+".ListSessionsEx", 0).Err, "it is let in again")
}

// TestClose_AnswersEveryCall are done or refused, each of them, and none of them keeps the server.
func TestClose_AnswersEveryCall(t *testing.T) {
	s := serve(t)
	path := s.create(t, "shop", false)
	done := make(chan *dbus.Call, maxCalls)
	begun := make(chan bool)
	go func() {
		for n := range cap(done) {
			s.client.Object(dbusapi.BusName, path).Go(dbusapi.SessionInterface+".SetDescription", 0, done, "the last word")
			if n == 100 {
				close(begun)
			}
		}
	}()
	<-begun
	require.NoError(t, s.Close())
	refusals := []string{
		"", dbusapi.ErrorName(dbusapi.ShuttingDown), "org.freedesktop.DBus.Error.NoReply", "org.freedesktop.DBus.Error.ServiceUnknown", "org.freedesktop.DBus.Error.NameHasNoOwner",
	}
	for range cap(done) {
		call := testbed.Receive(t, done, "answer")
		assert.Contains(t, refusals, errorName(call.Err), "%v", call.Err)
	}
}

// TestReads_DoNotWaitForTheEventLoop: whatever only reads is answered while the loop does nothing
// at all, however much of it there is.
func TestReads_DoNotWaitForTheEventLoop(t *testing.T) {
	s := serve(t)
	path := s.create(t, "shop", true)
	h := pause{make(chan struct{}), make(chan struct{})}
	s.pauses <- h
	changed := s.client.Object(dbusapi.BusName, path).Go(dbusapi.SessionInterface+".SetDescription", 0, make(chan *dbus.Call, 1), "slow")
	testbed.Receive(t, forwardClose(h.reached), "the loop waits for its store")
	released := sync.OnceFunc(func() { close(h.release) })
	defer released()
	manager, session := s.client.Object(dbusapi.BusName, dbusapi.ManagerPath), s.client.Object(dbusapi.BusName, path)
	asked, done := 0, make(chan *dbus.Call, 1000)
	ask := func(object dbus.BusObject, method string, args ...any) {
		object.Go(method, 0, done, args...)
		asked++
	}
	for range maxLists / 3 {
		ask(manager, dbusapi.ManagerInterface+".ListSessions")
		ask(manager, dbusapi.ManagerInterface+".ListSessionsEx")
		ask(manager, objectManagerInterface+".GetManagedObjects")
	}
	for range 100 {
		ask(manager, propertiesInterface+".GetAll", dbusapi.ManagerInterface)
		ask(manager, propertiesInterface+".Get", dbusapi.ManagerInterface, "Problems")
		ask(manager, dbusapi.ManagerInterface+".GetSession", "shop")
		ask(session, propertiesInterface+".GetAll", dbusapi.SessionInterface)
		ask(session, propertiesInterface+".Get", dbusapi.SessionInterface, "Runs")
		ask(session, propertiesInterface+".Set", dbusapi.SessionInterface, "State", dbus.MakeVariant("running"))
		ask(session, introspectableInterface+".Introspect")
	}
	for range asked {
		if err := testbed.Receive(t, done, "answer").Err; err != nil {
			require.Equal(t, "org.freedesktop.DBus.Error.PropertyReadOnly", errorName(err))
		}
	}
	select {
	case <-changed.Done:
		t.Error("the loop was not held")
	default:
	}
	released()
	require.NoError(t, testbed.Receive(t, changed.Done, "change").Err)
}
