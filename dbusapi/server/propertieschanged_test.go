package server

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/testbed"
	"github.com/corrald/corral/supervisor"
)

// announcements are how each property was announced by PropertiesChanged, by interface and name:
// with its "value", or as "invalidated".
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

// TestPropertiesChanged_FollowsTheAnnotations holds the signals of a session's life against the
// annotations: const properties are in none of them, those with false neither, and of those with
// invalidates it is told that they have changed and not to what.
func TestPropertiesChanged_FollowsTheAnnotations(t *testing.T) {
	s := serve(t)
	a := &announcements{seen: map[string]map[string]bool{}}
	ear, err := dbus.Connect(os.Getenv("DBUS_SESSION_BUS_ADDRESS"), dbus.WithIncomingInterceptor(a.record))
	require.NoError(t, err)
	t.Cleanup(func() { _ = ear.Close() })
	require.NoError(t, ear.AddMatchSignal(dbus.WithMatchSender(dbusapi.BusName)))

	path := s.create(t, "shop", false)
	do := func(method string, args ...any) {
		t.Helper()
		require.NoError(t, s.call(path, dbusapi.SessionInterface+"."+method, args...).Err, method)
	}
	do("SetDescription", "a shop")
	do("SetLabels", map[string]string{"a": "b"})
	do("SetOnLogin", "resume")
	do("SetOnLogin", "ignore") // what is enabled does not expire
	do("Start")
	require.NoError(t, s.sup.Report(t.Context(), "shop", supervisor.Report{Activity: "waiting", Reason: "question", Message: "a secret?"}))
	do("Acknowledge")
	require.NoError(t, s.sup.Report(t.Context(), "shop", supervisor.Report{Activity: "idle", Reason: "turn-ended"}))
	s.endScope(t, "shop")
	testbed.Poll(t, "the end is shown: what one turn changes and changes back is not announced", func() bool {
		n, err := s.sup.Session("shop")
		return err == nil && n.State == "failed"
	})
	do("Start")
	s.Server.ShuttingDownChanged(true)
	s.Server.LingeringChanged(true)
	s.sup.Trouble("test", "something is wrong")
	require.NoError(t, s.sup.CheckProblems())
	require.NoError(t, ear.Object(dbusapi.BusName, dbusapi.ManagerPath).Call(dbusapi.ManagerInterface+".ListSessions", 0).Err, "comes after all signals")

	a.Lock()
	defer a.Unlock()
	var list strings.Builder
	for _, text := range []string{dbusapi.ManagerXML, dbusapi.SessionXML} {
		name := map[string]string{dbusapi.ManagerXML: dbusapi.ManagerInterface, dbusapi.SessionXML: dbusapi.SessionInterface}[text]
		for _, p := range interfaceIn(t, text, name).Properties {
			emits := "true"
			for _, annotation := range p.Annotations {
				emits = annotation.Value
			}
			allowed := map[string]string{"true": "value", "invalidates": "invalidated"}[emits]
			hows := sortedNames(a.seen[name+" "+p.Name])
			for _, how := range hows {
				assert.Equal(t, allowed, how, "%s of %s is annotated with %s", p.Name, name, emits)
			}
			delete(a.seen, name+" "+p.Name)
			_, _ = fmt.Fprintf(&list, "%s %s %s %v\n", name[strings.LastIndexByte(name, '.')+1:], p.Name, emits, hows)
		}
	}
	assert.Empty(t, a.seen, "what the contract does not have")
	want, err := os.ReadFile("testdata/propertieschanged.golden")
	require.NoError(t, err)
	if !assert.Equal(t, string(want), list.String(), "if members were added, it is to be as logged") {
		t.Log("\n" + list.String())
	}
}
