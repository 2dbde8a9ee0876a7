package server

import (
	"context"
	"reflect"
	"slices"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
)

// TestControl_EveryMethodThatChangesASession is refused to an agent of another session, except for
// Approve and Deny, which are refused to every agent.
func TestControl_EveryMethodThatChangesASession(t *testing.T) {
	s := serve(t)
	s.create(t, "lead", false)
	s.create(t, "other", false)
	lead := "lead"
	refused := func(m *method, o object, name string) bool {
		o.server, o.client = s.Server, &client{}
		o.client.agent.Store(&lead)
		var body []any
		for _, kind := range split(m.in) {
			body = append(body, reflect.Zero(kind).Interface())
		}
		if o.session == "" && len(body) > 0 && reflect.TypeOf(body[0]) == reflect.TypeFor[string]() {
			body[0] = "other"
		}
		msg := &dbus.Message{Body: body, Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldMember: dbus.MakeVariant(name),
		}}
		_, err := m.call(context.Background(), &o, msg)
		return err != nil && toDBusError(err).Name == dbusapi.ErrorName(dbusapi.AccessDenied)
	}
	reading := []string{"Capture", "OpenLog", "Explain", "GetEnvironment", "Approve", "Deny"}
	for name, m := range sessionInterfaces[dbusapi.SessionInterface] {
		if !slices.Contains(reading, name) {
			assert.True(t, refused(m, object{session: "other", path: dbusapi.SessionPath("other")}, name), name)
		}
	}
	others := []string{"CreateSession", "ListSessions", "ListSessionsEx", "ListAgents", "ListStrays", "GetSession",
		"GetSessionByUnit", "GetSessionByPID", "ReportActivity", "Reload"}
	for name, m := range managerInterfaces[dbusapi.ManagerInterface] {
		if !slices.Contains(others, name) {
			assert.True(t, refused(m, object{path: dbusapi.ManagerPath}, name), name)
		}
	}
	require.NoError(t, s.manager("StopSession", "other", uint64(0)).Err, "a caller outside of all sessions")
}

// split returns the types of the values in a signature.
func split(sig dbus.Signature) (types []reflect.Type) {
	for text := sig.String(); text != ""; {
		for n := 1; ; n++ {
			one, err := dbus.ParseSignature(text[:n])
			if err != nil {
				continue
			}
			value := map[string]any{"s": "", "t": uint64(0), "u": uint32(0), "i": int32(0), "b": false, "as": []string{},
				"a{ss}": map[string]string{}, "a{sv}": map[string]dbus.Variant{}, "a(sv)": []any{}, "v": dbus.MakeVariant("")}
			types = append(types, reflect.TypeOf(value[one.String()]))
			text = text[n:]
			break
		}
	}
	return types
}
