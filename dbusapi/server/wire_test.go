package server

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/testbed"
	"github.com/corrald/corral/supervisor"
)

// unmarshal decodes a message body with godbus.
func unmarshal(t *testing.T, signature dbus.Signature, body []byte) []any {
	t.Helper()
	empty := dbus.Message{Type: dbus.TypeMethodReply, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldReplySerial: dbus.MakeVariant(uint32(1)),
		dbus.FieldSignature:   dbus.MakeVariant(signature),
	}}
	var b bytes.Buffer
	require.NoError(t, empty.EncodeTo(&b, binary.LittleEndian))
	binary.LittleEndian.PutUint32(b.Bytes()[4:], uint32(len(body)))
	b.Write(body)
	msg, err := dbus.DecodeMessage(&b)
	require.NoError(t, err)
	return msg.Body
}

// TestMarshalObjects_MatchesGodbus: godbus decodes the body to the values that it would have
// encoded itself.
func TestMarshalObjects_MatchesGodbus(t *testing.T) {
	now := time.Now()
	all := []*supervisor.Snapshot{
		{ID: "empty"},
		{
			ID: "full-1.2", Agent: "claude", Command: []string{"a", "", "ü"}, WorkingDirectory: "/w", Created: now,
			Labels: map[string]string{"a": "b", "": "", "cc": "d"}, State: "running",
			ExecMainCode: -1, ExecMainStatus: 1 << 30, Idle: true, MainPID: ^uint32(0), Expires: now,
			Reason: "a longer text, with a – in it",
		},
	}
	want := map[dbus.ObjectPath]map[string]map[string]dbus.Variant{}
	for _, n := range all {
		want[dbusapi.SessionPath(n.ID)] = map[string]map[string]dbus.Variant{
			dbusapi.SessionInterface: sessionProperties(n).variants(),
		}
	}
	for count := range len(all) + 1 {
		m := marshalObjects(all[:count])
		got := unmarshal(t, m.Signature, m.Body)[0].(map[dbus.ObjectPath]map[string]map[string]dbus.Variant)
		assert.Len(t, got, count)
		for path, interfaces := range got {
			assert.Equal(t, want[path], interfaces)
		}
	}
	var w wire
	w.text("\xff\x00")
	assert.Equal(t, []any{"\uFFFD\uFFFD"}, unmarshal(t, dbus.ParseSignatureMust("s"), w),
		"bytes that the bus would reject")
	assert.Panics(t, func() { w.variant(int16(1)) })
}

// TestMarshalRows_MatchesGodbus: godbus decodes the body to the rows.
func TestMarshalRows_MatchesGodbus(t *testing.T) {
	all := []*supervisor.Snapshot{
		{ID: "empty"},
		{ID: "s1", Agent: "ü", State: "running", Activity: "waiting", Attention: "question", StateChanged: time.Now()},
	}
	for count := range len(all) + 1 {
		m := marshalRows(all[:count])
		var rows []dbusapi.SessionRow
		require.NoError(t, dbus.Store(unmarshal(t, m.Signature, m.Body), &rows))
		require.Len(t, rows, count)
		for i, n := range all[:count] {
			assert.Equal(t, dbusapi.SessionRow{
				ID: n.ID, Agent: n.Agent, State: n.State, Activity: n.Activity, Attention: n.Attention,
				StateChange: usec(n.StateChanged), Path: dbusapi.SessionPath(n.ID),
			}, rows[i])
		}
	}
}

// TestGetManagedObjects_WithAThousandSessions: the reply is complete and correct while the sessions
// change.
func TestGetManagedObjects_WithAThousandSessions(t *testing.T) {
	s := serve(t)
	const sessions = 1000
	done := make(chan *dbus.Call, sessions)
	manager := s.client.Object(dbusapi.BusName, dbusapi.ManagerPath)
	for n := range sessions {
		spec := map[string]dbus.Variant{
			"Id":      dbus.MakeVariant(fmt.Sprint("s", n)),
			"Command": dbus.MakeVariant([]string{"true"}),
			"Start":   dbus.MakeVariant(false),
		}
		manager.Go(dbusapi.ManagerInterface+".CreateSession", 0, done, "command", spec)
	}
	for range sessions {
		require.NoError(t, testbed.Receive(t, done, "session").Err)
	}
	f := follow(t)
	replies := make(chan *dbus.Call, 64)
	f.requestAll(replies)
	for range 2 {
		require.NoError(t, testbed.Receive(t, replies, "first reply").Err)
	}
	const changes = 300
	go func() {
		for n := range changes {
			session := s.client.Object(dbusapi.BusName, dbusapi.SessionPath(fmt.Sprint("s", n)))
			session.Go(dbusapi.SessionInterface+".SetDescription", 0, done, fmt.Sprint("changed ", n))
		}
	}()
	for range 10 {
		f.requestAll(replies)
		for range 2 {
			call := testbed.Receive(t, replies, "reply")
			require.NoError(t, call.Err)
			if all, ok := call.Body[0].(map[dbus.ObjectPath]map[string]map[string]dbus.Variant); ok {
				require.Len(t, all, sessions)
				properties := all[dbusapi.SessionPath("s7")][dbusapi.SessionInterface]
				require.Len(t, properties, len(sessionProperties(&supervisor.Snapshot{})))
			}
		}
	}
	for range changes {
		require.NoError(t, testbed.Receive(t, done, "change").Err)
	}
	f.requestAll(replies)
	for range 2 {
		require.NoError(t, testbed.Receive(t, replies, "last reply").Err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	assert.Empty(t, f.mismatches[:min(len(f.mismatches), 1)],
		"%d of %d replies differ from the signals", len(f.mismatches), f.compared)
	last := f.sessions[dbusapi.SessionPath(fmt.Sprint("s", changes-1))]
	assert.Equal(t, fmt.Sprint("changed ", changes-1), last["Description"].Value())
}

func BenchmarkMarshalObjects(b *testing.B) {
	all := make([]*supervisor.Snapshot, 1000)
	for n := range all {
		all[n] = &supervisor.Snapshot{
			ID: fmt.Sprint("s", n), Agent: "command", Command: []string{"sh", "-c", "exec sleep 1000"},
			WorkingDirectory: "/home/user/project", State: "running",
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		marshalObjects(all)
	}
}
