package server

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/unitproperty"
	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/supervisor/session"
)

func message(path dbus.ObjectPath, iface, member string, body ...any) *dbus.Message {
	return &dbus.Message{Type: dbus.TypeMethodCall, Body: body, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldPath: dbus.MakeVariant(path), dbus.FieldInterface: dbus.MakeVariant(iface), dbus.FieldMember: dbus.MakeVariant(member),
	}}
}

func from(sender string, msg *dbus.Message) *dbus.Message {
	msg.Headers[dbus.FieldSender] = dbus.MakeVariant(sender)
	return msg
}

func TestOrderKey(t *testing.T) {
	const manager, ofSession = dbusapi.ManagerInterface, dbusapi.SessionInterface
	for _, row := range []struct {
		name string
		msg  *dbus.Message
		want string
	}{
		{"the Manager's method of a session", message(dbusapi.ManagerPath, manager, "StopSession", "shop", uint64(0)), "changes of shop by "},
		{"the session's own", message(dbusapi.SessionPath("shop"), ofSession, "Stop", uint64(0)), "changes of shop by "},
		{"its text argument is no id", message(dbusapi.SessionPath("shop"), ofSession, "SetDescription", "other"), "changes of shop by "},
		{"input is in order with itself", message(dbusapi.SessionPath("shop"), ofSession, "SendInput", "text", uint64(0)), "input shop"},
		{"also through the Manager", message(dbusapi.ManagerPath, manager, "SendInput", "shop", "text", uint64(0)), "input shop"},
		{"keys are input", message(dbusapi.SessionPath("shop"), ofSession, "SendKeys", []string{"Enter"}), "input shop"},
		{"creations do not wait for each other: the agent is no session", message(dbusapi.ManagerPath, manager, "CreateSession", "claude"), ""},
		{"what only looks is in order with its client's other looks", message(dbusapi.ManagerPath, manager, "GetSession", "shop"), "reads of "},
		{"a terminal that does not answer holds up nothing but who looks at it", message(dbusapi.SessionPath("shop"), ofSession, "Capture", uint32(9), uint64(0)), "screen of shop"},
		{"a log that cannot be opened holds up nothing but its client's other looks", message(dbusapi.SessionPath("shop"), ofSession, "OpenLog"), "reads of "},
		{"also through the Manager", message(dbusapi.ManagerPath, manager, "OpenLog", "shop"), "reads of "},
		{"what one client changes waits for none of another's", from(":1.7", message(dbusapi.SessionPath("shop"), ofSession, "Kill", "agent", int32(9))), "changes of shop by :1.7"},
		{"reports are in order with their client's others", message(dbusapi.ManagerPath, manager, "ReportActivity", "idle", map[string]dbus.Variant{}), "reports of "},
		{"what can be no id is not kept", message(dbusapi.ManagerPath, manager, "StopSession", strings.Repeat("x", 100), uint64(0)), ""},
		{"without arguments", message(dbusapi.ManagerPath, manager, "Clean"), ""},
		{"an argument that is no text", message(dbusapi.ManagerPath, manager, "GetSessionByPID", uint32(1)), "reads of "},
		{"an argument that is no text, and should be", message(dbusapi.ManagerPath, manager, "StopSession", uint32(1)), ""},
		{"properties are read at any time", message(dbusapi.SessionPath("shop"), propertiesInterface, "GetAll", ofSession), "reads of "},
		{"no interface", message(dbusapi.SessionPath("shop"), "", "Stop", uint64(0)), ""},
		{"nothing at all", &dbus.Message{Type: dbus.TypeMethodCall}, ""},
	} {
		t.Run(row.name, func(t *testing.T) { assert.Equal(t, row.want, orderKey(row.msg)) })
	}
}

// TestOrder_ForcefulVerbsWaitForNoOtherClient: whatever another client's call is waiting for, a
// session can be stopped, killed and removed, and one client's calls keep their order.
func TestOrder_ForcefulVerbsWaitForNoOtherClient(t *testing.T) {
	s := New(Info{}, func(error) {})
	call := func(sender, member string, body ...any) *ticket {
		msg := from(sender, message(dbusapi.SessionPath("shop"), dbusapi.SessionInterface, member, body...))
		s.order(msg, 0)
		return s.takeTicket(msg)
	}
	for _, hangs := range []string{"OpenLog", "Restart", "Resume", "Remove", "SetUnitProperties", "GetAttachCommand", "SendInput", "Capture", "Explain", "GetEnvironment"} {
		first := call(":1.1", hangs)
		for _, force := range []string{"Stop", "Kill", "Remove", "Freeze", "Thaw"} {
			second := call(":1.2", force)
			assert.True(t, second.previous == nil || isClosed(second.previous), "%s waits for another client's %s", force, hangs)
			second.end()
		}
		first.end()
	}
	first := call(":1.1", "Restart")
	second := call(":1.1", "Stop")
	assert.False(t, isClosed(second.previous))
	first.end()
	assert.True(t, isClosed(second.previous))
	second.end()
}

func TestOrder_DropsFinishedTickets(t *testing.T) {
	s := New(Info{}, func(error) {})
	for i := range 10000 {
		msg := message(dbusapi.ManagerPath, dbusapi.ManagerInterface, "StopSession", fmt.Sprint("shop-", i))
		s.order(msg, 0)
		s.takeTicket(msg).end()
	}
	assert.LessOrEqual(t, len(s.tails), 4097)
}

func TestParseSpec(t *testing.T) {
	v := dbus.MakeVariant
	props := []dbusapi.UnitProperty{{Name: "MemoryMax", Value: dbus.MakeVariant(uint64(1 << 29))}, {Name: "CPUQuotaPerSecUSec", Value: dbus.MakeVariant(uint64(5e5))}}
	fix := "fix"
	for _, row := range []struct {
		name  string
		given map[string]dbus.Variant
		want  supervisor.Spec
		err   string // "NAME: what it has to say"
	}{
		{"nothing", nil, supervisor.Spec{}, ""},
		{"everything", map[string]dbus.Variant{
			"Id": v("shop"), "Description": v("a shop"), "Command": v([]string{"a", ""}), "WorkingDirectory": v("/w"), "Environment": v([]string{"A=b"}),
			"Labels": v(map[string]string{"a": "b"}), "OnLogin": v("resume"), "ConversationId": v("c1"), "Start": v(false), "UnitProperties": v(props), "x-mine": v(int32(3)),
		}, supervisor.Spec{
			ID: "shop", Description: "a shop", Command: []string{"a", ""}, WorkingDirectory: "/w", Environment: []string{"A=b"}, Labels: map[string]string{"a": "b"},
			OnLogin: "resume", ConversationID: "c1", NoStart: true,
			UnitProperties: []session.Property{{Name: "MemoryMax", Signature: "t", Value: "@t 536870912"}, {Name: "CPUQuotaPerSecUSec", Signature: "t", Value: "@t 500000"}},
		}, ""},
		{"Start, said out loud", map[string]dbus.Variant{"Start": v(true)}, supervisor.Spec{}, ""},
		{"an unknown key", map[string]dbus.Variant{"Colour": v("red")}, supervisor.Spec{}, `InvalidArgs: unknown key in the spec: "Colour"`},
		{"an unknown key of 10,000 bytes", map[string]dbus.Variant{strings.Repeat("k", 10000): v("red")}, supervisor.Spec{}, `InvalidArgs: unknown key in the spec: "kkk`},
		{"a wrong type", map[string]dbus.Variant{"Command": v("ls -l")}, supervisor.Spec{}, `InvalidArgs: Command in the spec has type "s", expected "as"`},
		{"a number for a text", map[string]dbus.Variant{"Id": v(int32(7))}, supervisor.Spec{}, `InvalidArgs: Id in the spec has type "i", expected "s"`},
		{"properties of another form", map[string]dbus.Variant{"UnitProperties": v([]string{"MemoryMax=1G"})}, supervisor.Spec{}, `InvalidArgs: UnitProperties in the spec has type "as", expected "a(sv)"`},
		{"a property that supervision stands on", map[string]dbus.Variant{"UnitProperties": v([]dbusapi.UnitProperty{{Name: "KillMode", Value: v("none")}})}, supervisor.Spec{}, `InvalidArgs: UnitProperties in the spec contains property "KillMode"`},
		{"a property without a name", map[string]dbus.Variant{"UnitProperties": v([]dbusapi.UnitProperty{{Value: v("x")}})}, supervisor.Spec{}, `InvalidArgs: UnitProperties in the spec contains property ""`},
		{"a worktree", map[string]dbus.Variant{"Worktree": v("fix")}, supervisor.Spec{Worktree: &fix}, ""},
		{"a worktree of a branch of its own", map[string]dbus.Variant{"Worktree": v("")}, supervisor.Spec{Worktree: new(string)}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, err := parseSpec(row.given)
			if row.err == "" {
				require.NoError(t, err)
				assert.Equal(t, row.want, got)
				return
			}
			name, says, _ := strings.Cut(row.err, ": ")
			var e *dbus.Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, dbusapi.ErrorName(name), e.Name)
			assert.Contains(t, e.Body[0], says)
			assert.Less(t, len(e.Body[0].(string)), 300, "a client's text does not come back whole")
		})
	}
}

// FuzzParseSpec: no value of whatever type under whatever key crashes it, and what is refused is
// refused with a name of the contract.
func FuzzParseSpec(f *testing.F) {
	for key := range specKeys {
		f.Add(key, "as", `["a", "b"]`)
		f.Add(key, "s", `"a"`)
	}
	f.Add("Labels", "a{ss}", `{"a": "b"}`)
	f.Fuzz(func(t *testing.T, key, signature, text string) {
		given := map[string]dbus.Variant{key: dbus.MakeVariant(text)}
		if v, err := unitproperty.Decode(signature, text); err == nil {
			given[key] = v
		}
		if _, err := parseSpec(given); err != nil {
			var e *dbus.Error
			require.ErrorAs(t, err, &e)
			require.NotEmpty(t, dbusapi.ShortErrorName(*e))
		}
	})
}

// TestChanged_FollowsTheAnnotations holds the properties against the annotations of the contract.
func TestChanged_FollowsTheAnnotations(t *testing.T) {
	emits := map[string]string{}
	for _, p := range interfaceIn(t, dbusapi.SessionXML, dbusapi.SessionInterface).Properties {
		emits[p.Name] = "true"
		for _, a := range p.Annotations {
			if a.Name == "org.freedesktop.DBus.Property.EmitsChangedSignal" {
				emits[p.Name] = a.Value
			}
		}
	}
	all := sessionProperties(&supervisor.Snapshot{})
	told := changed(properties{}, all) // everything is different
	for name, how := range emits {
		_, isTold := told[name]
		switch how {
		case "true", "const": // the latter never change
			assert.True(t, isTold, name)
		case "false":
			assert.False(t, isTold, name)
			assert.True(t, unpublished[name] || onDemand[name] != nil, name)
		case "invalidates":
			assert.True(t, publishedWithoutValue[name], "%s is told of, and not what it is", name)
		}
	}
	assert.Empty(t, changed(all, all))
	other := sessionProperties(&supervisor.Snapshot{State: "running", Labels: map[string]string{}, ControlGroup: "/x"})
	assert.Equal(t, properties{"State": "running"}, changed(all, other))
}

func TestToBus_NamesEverySupervisorError(t *testing.T) {
	for kind := supervisor.NoSuchSession; kind <= supervisor.TimedOut; kind++ {
		require.Contains(t, errorNames, kind)
		err := toDBusError(&supervisor.Error{Kind: kind, Text: "a\x00b\xff"})
		var e *dbus.Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, dbusapi.ErrorName(errorNames[kind]), e.Name)
		assert.Equal(t, []any{`a\0b` + "\uFFFD"}, e.Body, "the bus takes neither a NUL nor bytes that are no text")
	}
	var e *dbus.Error
	require.ErrorAs(t, toDBusError(supervisor.ErrClosed), &e)
	assert.Equal(t, dbusapi.ErrorName(dbusapi.ShuttingDown), e.Name)
	require.ErrorAs(t, toDBusError(errors.New("something else")), &e)
	assert.Equal(t, dbusapi.ErrorName(dbusapi.Internal), e.Name)
}
