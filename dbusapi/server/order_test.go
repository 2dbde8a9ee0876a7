package server

import (
	"fmt"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"

	"github.com/corrald/corral/dbusapi"
)

func message(path dbus.ObjectPath, iface, member string, body ...any) *dbus.Message {
	return &dbus.Message{Type: dbus.TypeMethodCall, Body: body, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldPath:      dbus.MakeVariant(path),
		dbus.FieldInterface: dbus.MakeVariant(iface),
		dbus.FieldMember:    dbus.MakeVariant(member),
	}}
}

func from(sender string, msg *dbus.Message) *dbus.Message {
	msg.Headers[dbus.FieldSender] = dbus.MakeVariant(sender)
	return msg
}

func TestOrderKey(t *testing.T) {
	managerCall := func(member string, body ...any) *dbus.Message {
		return message(dbusapi.ManagerPath, dbusapi.ManagerInterface, member, body...)
	}
	sessionCall := func(member string, body ...any) *dbus.Message {
		return message(dbusapi.SessionPath("shop"), dbusapi.SessionInterface, member, body...)
	}
	for _, row := range []struct {
		name string
		msg  *dbus.Message
		want string
	}{
		{"the Manager's method for a session", managerCall("StopSession", "shop", uint64(0)), "changes of shop by "},
		{"the session's own method", sessionCall("Stop", uint64(0)), "changes of shop by "},
		{"the text argument is not an id", sessionCall("SetDescription", "other"), "changes of shop by "},
		{"input", sessionCall("SendInput", "text", uint64(0)), "input shop"},
		{"input through the Manager", managerCall("SendInput", "shop", "text", uint64(0)), "input shop"},
		{"keys are input", sessionCall("SendKeys", []string{"Enter"}), "input shop"},
		{"creating sessions has no order: the agent is not a session", managerCall("CreateSession", "claude"), ""},
		{"a reading call", managerCall("GetSession", "shop"), "reads of "},
		{"a hanging terminal delays only other captures", sessionCall("Capture", uint32(9), uint64(0)), "screen of shop"},
		{"a log that cannot be opened delays only its client's reading calls", sessionCall("OpenLog"), "reads of "},
		{"the log through the Manager", managerCall("OpenLog", "shop"), "reads of "},
		{
			"changes of two clients are not ordered",
			from(":1.7", sessionCall("Kill", "agent", int32(9))),
			"changes of shop by :1.7",
		},
		{
			"status reports of a client are ordered",
			managerCall("ReportActivity", "idle", map[string]dbus.Variant{}),
			"reports of ",
		},
		{"an invalid id is not stored", managerCall("StopSession", strings.Repeat("x", 100), uint64(0)), ""},
		{"without arguments", managerCall("Clean"), ""},
		{"an argument that is not a string", managerCall("GetSessionByPID", uint32(1)), "reads of "},
		{"an argument that should be a string", managerCall("StopSession", uint32(1)), ""},
		{
			"reading properties",
			message(dbusapi.SessionPath("shop"), propertiesInterface, "GetAll", dbusapi.SessionInterface),
			"reads of ",
		},
		{"without an interface", message(dbusapi.SessionPath("shop"), "", "Stop", uint64(0)), ""},
		{"an empty message", &dbus.Message{Type: dbus.TypeMethodCall}, ""},
	} {
		t.Run(row.name, func(t *testing.T) { assert.Equal(t, row.want, orderKey(row.msg)) })
	}
}

// TestOrder_ForcefulVerbsWaitForNoOtherClient: a session can be stopped, killed and removed while
// any other client's call hangs. The calls of one client keep their order.
func TestOrder_ForcefulVerbsWaitForNoOtherClient(t *testing.T) {
	s := New(Info{}, func(error) {})
	call := func(sender, member string, body ...any) *ticket {
		msg := from(sender, message(dbusapi.SessionPath("shop"), dbusapi.SessionInterface, member, body...))
		s.order(msg, 0)
		return s.takeTicket(msg)
	}
	for _, hangs := range []string{
		"OpenLog", "Restart", "Resume", "Remove", "SetUnitProperties", "GetAttachCommand",
		"SendInput", "Capture", "Explain", "GetEnvironment",
	} {
		first := call(":1.1", hangs)
		for _, force := range []string{"Stop", "Kill", "Remove", "Freeze", "Thaw"} {
			second := call(":1.2", force)
			canStart := second.previous == nil || isClosed(second.previous)
			assert.True(t, canStart, "%s waits for another client's %s", force, hangs)
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
