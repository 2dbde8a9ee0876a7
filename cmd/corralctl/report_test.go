package main

import (
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/testbed"
)

func TestHookPayload_CompletesAReport(t *testing.T) {
	for name, c := range map[string]struct {
		given   client.Report
		payload string
		want    client.Report
	}{
		"Claude Code asks": {
			client.Report{Activity: "waiting"},
			`{"session_id":"1b4e28ba-2fa1","hook_event_name":"Notification","message":"Claude needs your permission to use Bash","notification_type":"permission_prompt"}`,
			client.Report{Activity: "waiting", Reason: "permission", Message: "Claude needs your permission to use Bash",
				ConversationID: "1b4e28ba-2fa1"},
		},
		"options take precedence": {
			client.Report{Activity: "waiting", Reason: "auth", Message: "mine", ConversationID: "x"},
			`{"session_id":"y","message":"theirs","notification_type":"idle_prompt"}`,
			client.Report{Activity: "waiting", Reason: "auth", Message: "mine", ConversationID: "x"},
		},
		"Codex ends a turn": {
			client.Report{Activity: "idle"}, `{"type":"agent-turn-complete","thread-id":"t-1","last-assistant-message":"Done."}`,
			client.Report{Activity: "idle", Message: "Done.", ConversationID: "t-1"},
		},
		"working has no message": {
			client.Report{Activity: "working"}, `{"session_id":"a","message":"m","reason":"question"}`,
			client.Report{Activity: "working", ConversationID: "a"},
		},
		"an id that could become an option": {client.Report{Activity: "idle"}, `{"session_id":"--help"}`,
			client.Report{Activity: "idle"}},
		"one field of another type": {client.Report{Activity: "idle"}, `{"session_id":"a","message":{"b":1},"reason":3}`,
			client.Report{Activity: "idle", ConversationID: "a"}},
		"invalid JSON": {client.Report{Activity: "idle"}, "\x00\xff{{{", client.Report{Activity: "idle"}},
		"a payload that is too long": {client.Report{Activity: "idle"},
			`{"session_id":"a","message":"` + strings.Repeat("x", 2<<20) + `"}`, client.Report{Activity: "idle"}},
		"a long message is cut between characters": {
			client.Report{Activity: "idle"}, `{"message":"x` + strings.Repeat("é", maxMessage) + `"}`,
			client.Report{Activity: "idle", Message: "x" + strings.Repeat("é", maxMessage/2-1)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.given
			e, _ := parseHookEvent(readInput(strings.NewReader(c.payload)))
			e.complete(&got)
			assert.Equal(t, c.want, got)
		})
	}
}

// TestReport_DoesNotWaitForAnUnclosedPipe: a writer that never closes the pipe does not block the
// agent.
func TestReport_DoesNotWaitForAnUnclosedPipe(t *testing.T) {
	in, out, err := os.Pipe()
	require.NoError(t, err)
	defer func() { _, _ = in.Close(), out.Close() }()
	began := time.Now()
	assert.Nil(t, readInput(in))
	assert.Less(t, time.Since(began), 100*payloadTimeout)
}

// TestReport_DrainsALargePayload: a writer of more than maxPayload does not get SIGPIPE.
func TestReport_DrainsALargePayload(t *testing.T) {
	in, out := io.Pipe()
	wrote := make(chan error, 1)
	go func() {
		_, err := out.Write(make([]byte, 3*maxPayload))
		wrote <- err
		_ = out.Close()
	}()
	assert.Nil(t, readInput(in))
	require.NoError(t, <-wrote)
}

// TestReport_StartsFast measures what every verb costs before it does anything; hooks cost it at
// every turn of an agent. It takes the fastest of several runs, in processor time.
func TestReport_StartsFast(t *testing.T) {
	corralctl := testbed.Programs(t).Corralctl
	least := time.Hour
	for range 10 {
		cmd := exec.Command(corralctl, "report", "idle")
		require.NoError(t, cmd.Run())
		least = min(least, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
	}
	assert.Less(t, least, 20*time.Millisecond)
}

// TestReport_InSandboxWaitsForReceiver reports through a notification socket. The receiver must be
// able to look up the sender's control group, so the sender must not exit before that.
func TestReport_InSandboxWaitsForReceiver(t *testing.T) {
	path := filepath.Join(testbed.Dir(t), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	defer func() { _ = socket.Close() }()
	report := exec.Command(testbed.Programs(t).Corralctl, "report", "idle")
	report.Env = append(os.Environ(), "CORRAL_SESSION=shop", "CORRAL_SANDBOX=workspace", "NOTIFY_SOCKET="+path)
	require.NoError(t, report.Start())
	require.NoError(t, socket.SetDeadline(time.Now().Add(10*time.Second)))
	text, control := make([]byte, 4<<10), make([]byte, unix.CmsgSpace(4))
	n, _, _, _, err := socket.ReadMsgUnix(text, nil)
	require.NoError(t, err)
	assert.Regexp(t, `^X_CORRAL_REPORT=\{.*"idle"`, string(text[:n]))
	n, size, _, _, err := socket.ReadMsgUnix(text, control)
	require.NoError(t, err)
	assert.Equal(t, "BARRIER=1", string(text[:n]))
	messages, err := unix.ParseSocketControlMessage(control[:size])
	require.NoError(t, err)
	require.Len(t, messages, 1)
	held, err := unix.ParseUnixRights(&messages[0])
	require.NoError(t, err)
	require.NoError(t, unix.Close(held[0]))
	require.NoError(t, report.Wait())
}

func FuzzHookPayload(f *testing.F) {
	f.Add([]byte(`{"session_id":"a","message":"m"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var r client.Report
		e, _ := parseHookEvent(data)
		e.complete(&r)
		assert.True(t, isSendable(r.Message))
		assert.LessOrEqual(t, len(r.Message), maxMessage)
		for agent := range agentHooks {
			r, ok := readHook(agent, "", data)
			assert.Equal(t, ok, r != client.Report{})
			assert.Equal(t, ok, slices.Contains(word.Activities, r.Activity))
			assert.True(t, r.Reason == "" || slices.Contains(word.Reasons, r.Reason))
			assert.True(t, r.ConversationID == "" || config.ValidConversationID(r.ConversationID))
			assert.True(t, isSendable(r.Message))
			assert.LessOrEqual(t, len(r.Message), maxMessage)
		}
	})
}
