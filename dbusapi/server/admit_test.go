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

// TestAdmit_LimitsPendingCallsPerClient: further calls are refused immediately, and only those of
// this client. Its pending calls are completed.
func TestAdmit_LimitsPendingCallsPerClient(t *testing.T) {
	s := serve(t)
	path := s.create(t, "stubborn", true) // with fakeExecutor no agent exits, so each stop waits
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
	testbed.Poll(t, "refused calls leave no goroutines behind", func() bool {
		return runtime.NumGoroutine() <= before+more/10
	})
	s.endScope(t, "stubborn")
	for range maxCalls {
		require.NoError(t, testbed.Receive(t, done, "reply").Err, "admitted calls are completed")
	}
	testbed.Poll(t, "calls of the client are admitted again", func() bool {
		return flood.Object(dbusapi.BusName, other).Call(dbusapi.SessionInterface+".SetDescription", 0, "again").Err == nil
	})
	left := 0
	s.tickets.Range(func(any, any) bool { left++; return true })
	assert.Zero(t, left, "no ticket is left over")
}

// TestAdmit_LimitsPendingBytesPerClient: calls that exceed the limit are refused immediately, and
// only those of this client. Its pending calls are completed.
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
	for range 6 { // these wait for the first call
		get(text)
	}
	for range 3 { // the other three, with their headers, are slightly smaller than the limit
		err := testbed.Receive(t, done, "refusal").Err
		assert.Equal(t, dbusapi.ErrorName(dbusapi.LimitsExceeded), errorName(err))
		require.ErrorContains(t, err, "pending calls")
	}
	get("shop")
	err := connectClient(t).Object(dbusapi.BusName, dbusapi.ManagerPath).
		Call(dbusapi.ManagerInterface+".Nothing", 0, text).Err
	assert.Equal(t, dbusapi.ErrorName(dbusapi.UnknownMethod), errorName(err), "another client is served")
	require.Empty(t, done, "admitted calls wait")
	close(release)
	require.NoError(t, testbed.Receive(t, first, "answer").Err)
	for range 3 {
		assert.Equal(t, dbusapi.ErrorName(dbusapi.NoSuchSession), errorName(testbed.Receive(t, done, "answer").Err))
	}
	require.NoError(t, testbed.Receive(t, done, "reply").Err, "a short call is served")
	get(text)
	err = testbed.Receive(t, done, "reply").Err
	assert.Equal(t, dbusapi.ErrorName(dbusapi.NoSuchSession), errorName(err), "a long call is admitted again")
}

// TestAdmit_LimitsListCallsPerClient: the size of each reply grows with the number of sessions, and
// a client that calls again before it has a reply does not need all of them.
func TestAdmit_LimitsListCallsPerClient(t *testing.T) {
	s := serve(t)
	s.create(t, "shop", false)
	held, release := make(chan bool), make(chan bool)
	go s.readView(func(*view) { held <- true; <-release })
	testbed.Receive(t, held, "no signals are sent any more")
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
		require.NoError(t, testbed.Receive(t, fine, "reply to the other client").Err)
	}
	err := flood.Object(dbusapi.BusName, dbusapi.ManagerPath).Call(dbusapi.ManagerInterface+".ListSessionsEx", 0).Err
	require.NoError(t, err, "a call of the client is admitted again")
}

// TestClose_AnswersEveryCall: calls that arrive during Close are either carried out or refused, and
// do not delay it.
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
		"", dbusapi.ErrorName(dbusapi.ShuttingDown), "org.freedesktop.DBus.Error.NoReply",
		"org.freedesktop.DBus.Error.ServiceUnknown", "org.freedesktop.DBus.Error.NameHasNoOwner",
	}
	for range cap(done) {
		call := testbed.Receive(t, done, "answer")
		assert.Contains(t, refusals, errorName(call.Err), "%v", call.Err)
	}
}

// TestReads_DoNotWaitForTheEventLoop: any number of reading calls are answered while the event loop
// is blocked because it saves a change. They do not return that change, whose signal is sent once
// it is saved.
func TestReads_DoNotWaitForTheEventLoop(t *testing.T) {
	s := serve(t)
	require.NoError(t, s.client.AddMatchSignal(dbus.WithMatchSender(dbusapi.BusName)))
	path := s.create(t, "shop", true)
	p := pause{make(chan struct{}), make(chan struct{})}
	s.pauses <- p
	changed := s.client.Object(dbusapi.BusName, path).
		Go(dbusapi.SessionInterface+".SetDescription", 0, make(chan *dbus.Call, 1), "slow")
	testbed.Receive(t, forwardClose(p.reached), "the event loop waits for its store")
	s.takeRecorded()
	release := sync.OnceFunc(func() { close(p.release) })
	defer release()
	manager, session := s.client.Object(dbusapi.BusName, dbusapi.ManagerPath), s.client.Object(dbusapi.BusName, path)
	calls, done := 0, make(chan *dbus.Call, 1000)
	ask := func(object dbus.BusObject, method string, args ...any) {
		object.Go(method, 0, done, args...)
		calls++
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
	for range calls {
		if err := testbed.Receive(t, done, "answer").Err; err != nil {
			require.Equal(t, "org.freedesktop.DBus.Error.PropertyReadOnly", errorName(err))
		}
	}
	select {
	case <-changed.Done:
		t.Error("the event loop was not blocked")
	default:
	}
	description := func() (value string) {
		require.NoError(t, s.call(path, propertiesInterface+".Get", dbusapi.SessionInterface, "Description").Store(&value))
		return value
	}
	assert.Empty(t, description())
	const signal = "PropertiesChanged Session [Description]"
	assert.NotContains(t, s.takeRecorded(), signal)
	release()
	require.NoError(t, testbed.Receive(t, changed.Done, "change").Err)
	assert.Equal(t, "slow", description())
	assert.Contains(t, s.takeRecorded(), signal)
}
