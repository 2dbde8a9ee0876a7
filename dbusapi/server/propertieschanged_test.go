package server

import (
	"maps"
	"os"
	"slices"
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

// announcements records how PropertiesChanged signals announced each property, by interface and
// name: with its "value", or as "invalidated".
type announcements struct {
	sync.Mutex
	seen map[string]map[string]bool
}

func (a *announcements) record(msg *dbus.Message) {
	if msg.Type != dbus.TypeSignal || member(msg) != "PropertiesChanged" {
		return
	}
	a.Lock()
	defer a.Unlock()
	note := func(name, how string) {
		key := msg.Body[0].(string) + " " + name
		if a.seen[key] == nil {
			a.seen[key] = map[string]bool{}
		}
		a.seen[key][how] = true
	}
	for name := range msg.Body[1].(map[string]dbus.Variant) {
		note(name, "value")
	}
	for _, name := range msg.Body[2].([]string) {
		note(name, "invalidated")
	}
}

// TestPropertiesChanged_FollowsTheAnnotations compares the signals sent during a session's life
// with the annotations of the properties: signals never contain properties annotated with const or
// false, and contain those annotated with invalidates without a value.
func TestPropertiesChanged_FollowsTheAnnotations(t *testing.T) {
	s := serve(t)
	a := &announcements{seen: map[string]map[string]bool{}}
	client, err := dbus.Connect(os.Getenv("DBUS_SESSION_BUS_ADDRESS"), dbus.WithIncomingInterceptor(a.record))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	require.NoError(t, client.AddMatchSignal(dbus.WithMatchSender(dbusapi.BusName)))

	path := s.create(t, "shop", false)
	do := func(method string, args ...any) {
		t.Helper()
		require.NoError(t, s.call(path, dbusapi.SessionInterface+"."+method, args...).Err, method)
	}
	do("SetDescription", "a shop")
	do("SetLabels", map[string]string{"a": "b", "on-limit": "continue"})
	do("SetOnLogin", "resume")
	do("SetOnLogin", "ignore") // a session that starts at login does not expire
	do("Start")
	question := supervisor.Report{Activity: "waiting", Reason: "question", Message: "a secret?"}
	require.NoError(t, s.sup.Report(t.Context(), "shop", question))
	asking, err := s.sup.Session("shop")
	require.NoError(t, err)
	s.sup.SetNotifications(map[string]supervisor.Notification{"shop": {Value: "pending", Since: asking.AttentionSince}})
	do("Acknowledge")
	require.NoError(t, s.sup.Report(t.Context(), "shop", supervisor.Report{Activity: "idle", Reason: "turn-ended"}))
	limit := supervisor.Report{Activity: "idle", Reason: "limit", Until: time.Now().Add(time.Hour)}
	require.NoError(t, s.sup.Report(t.Context(), "shop", limit))
	s.endScope(t, "shop")
	// The test waits before the next change, because one that is reverted in the same iteration of the
	// event loop is not published.
	testbed.Poll(t, "the session has failed", func() bool {
		n, err := s.sup.Session("shop")
		return err == nil && n.State == "failed"
	})
	conf := config.Default()
	conf.MaxRunning = 1
	require.NoError(t, s.sup.Reload(conf, map[string]config.Agent{"command": {Name: "command"}}))
	do("Start")
	s.create(t, "queued", false)
	require.NoError(t, s.manager("StartSession", "queued").Err)
	s.Server.ShuttingDownChanged(true)
	s.Server.LingeringChanged(true)
	s.sup.SetProblem("test", "something is wrong")
	require.NoError(t, s.sup.CheckProblems())
	manager := client.Object(dbusapi.BusName, dbusapi.ManagerPath)
	require.NoError(t, manager.Call(dbusapi.ManagerInterface+".ListSessions", 0).Err, "the reply follows all signals")

	a.Lock()
	defer a.Unlock()
	for iface, properties := range map[string][]dbusapi.Property{
		dbusapi.ManagerInterface: dbusapi.ManagerProperties, dbusapi.SessionInterface: dbusapi.SessionProperties,
	} {
		for _, p := range properties {
			name := iface[strings.LastIndexByte(iface, '.')+1:] + " " + p.Name
			want := []string{}
			switch {
			case slices.Contains(unchanged, name):
			case p.Announced == dbusapi.AnnouncedWithValue:
				want = []string{"value"}
			case p.Announced == dbusapi.AnnouncedWithoutValue:
				want = []string{"invalidated"}
			}
			assert.Equal(t, want, sortedNames(a.seen[iface+" "+p.Name]), name)
			delete(a.seen, iface+" "+p.Name)
		}
	}
	assert.Empty(t, a.seen, "properties that are not in the contract")
}

// unchanged are the announced properties that TestPropertiesChanged_FollowsTheAnnotations does not
// change.
var unchanged = []string{
	"Manager NStale", "Manager NSuspended", "Manager Notifications",
	"Session StatusText", "Session ConversationId", "Session SandboxTool", "Session SandboxNetwork",
	"Session ExecMainCode", "Session ExecMainStatus",
	"Session ExecMainExitTimestamp", "Session SessionAlive", "Session Attached", "Session Frozen", "Session Resumable",
	"Session Resumed", "Session Unit",
}

const emitsChangedSignal = "org.freedesktop.DBus.Property.EmitsChangedSignal"

// TestSessionProperties_AreThoseOfTheContract checks that each property in the contract is the
// value of one field, and that values which are read on demand are not announced.
func TestSessionProperties_AreThoseOfTheContract(t *testing.T) {
	var contract, fields []string
	for _, p := range dbusapi.SessionProperties {
		contract = append(contract, p.Name)
	}
	for _, all := range []propertyFields{snapshotFields, onDemandFields, measuredFields} {
		for _, f := range all {
			fields = append(fields, f.property)
		}
	}
	assert.ElementsMatch(t, contract, fields)
	values := sessionProperties(&supervisor.Snapshot{})
	maps.Insert(values, onDemandFields.of(&supervisor.Snapshot{}))
	maps.Insert(values, measuredFields.of(&supervisor.Measurements{}))
	for _, p := range interfaceIn(t, dbusapi.SessionXML, dbusapi.SessionInterface).Properties {
		assert.Equal(t, p.Type, dbus.SignatureOf(values[p.Name]).String(), p.Name)
		if onDemandFields.has(p.Name) || measuredFields.has(p.Name) {
			assert.Equal(t, dbusapi.NotAnnounced, published[p.Name], p.Name)
		}
	}
}

// TestChanged_FollowsTheAnnotations compares the properties that changed returns with the
// annotations in the contract.
func TestChanged_FollowsTheAnnotations(t *testing.T) {
	emits := map[string]string{}
	for _, p := range interfaceIn(t, dbusapi.SessionXML, dbusapi.SessionInterface).Properties {
		emits[p.Name] = "true"
		for _, a := range p.Annotations {
			if a.Name == emitsChangedSignal {
				emits[p.Name] = a.Value
			}
		}
	}
	all := sessionProperties(&supervisor.Snapshot{})
	sent := changed(properties{}, all) // every property differs
	for name, how := range emits {
		_, isPublished := sent[name]
		switch how {
		case "true", "const": // const properties do not change after the creation
			assert.True(t, isPublished, name)
		case "false":
			assert.False(t, isPublished, name)
		case "invalidates":
			assert.Equal(t, dbusapi.AnnouncedWithoutValue, published[name], name)
		}
	}
	assert.Empty(t, changed(all, all))
	other := sessionProperties(&supervisor.Snapshot{State: "running", Labels: map[string]string{}, ControlGroup: "/x"})
	assert.Equal(t, properties{"State": "running"}, changed(all, other))
}
