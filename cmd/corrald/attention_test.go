package main

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/testbed"
)

// reports is a command of sh that reports as an agent's hook does, with busctl alone.
func reports(activity string, details ...string) string {
	words := []string{"busctl", "--user", "call", dbusapi.BusName, string(dbusapi.ManagerPath), dbusapi.ManagerInterface, "ReportActivity", "'sa{sv}'", activity}
	words = append(words, string(rune('0'+len(details)/2)))
	for i := 0; i < len(details); i += 2 {
		words = append(words, details[i], "s", "'"+details[i+1]+"'")
	}
	return strings.Join(words, " ")
}

// gate is a FIFO at which a script waits until the test opens it.
func (d *corrald) gate(t *testing.T, name string) (pass string, open func()) {
	t.Helper()
	path := filepath.Join(d.dir, name)
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	return "read gate <" + path, func() {
		t.Helper()
		require.NoError(t, os.WriteFile(path, []byte("\n"), 0o600))
	}
}

// wants waits until the session wants attention for this, "" for nothing, and does this.
func (s *subject) wants(attention, activity string) facts {
	s.t.Helper()
	return s.wait(attention+" and "+activity, func(f facts) bool { return f.text("Attention") == attention && f.text("Activity") == activity })
}

// requested returns the reasons of the AttentionRequested signals since a mark.
func (d *corrald) requested(mark int) []string {
	reasons := []string{}
	signals, _ := d.heard.since(mark)
	for _, s := range signals {
		if s.Name == dbusapi.ManagerInterface+".AttentionRequested" {
			reasons = append(reasons, s.Body[2].(string))
		}
	}
	return reasons
}

// TestReport_IsAttributedByControlGroup of its scope: whose report it is the control group tells.
func TestReport_IsAttributedByControlGroup(t *testing.T) {
	d := startDaemon(t)
	pass1, open1 := d.gate(t, "one")
	pass2, open2 := d.gate(t, "two")
	mark := d.heard.mark()
	ask := reports("waiting", "Reason", "permission", "Message", "may I remove /tmp/x?")
	s := d.run(t, "asks", strings.Join([]string{pass1, ask, ask, pass2, "setsid " + reports("working"), "exec sleep 1000"}, "; "))
	s.become("running")
	open1()
	f := s.wants("permission", "waiting")
	assert.Equal(t, "report", f.text("AttentionSource"))
	assert.Equal(t, "may I remove /tmp/x?", f.text("AttentionMessage"))
	assert.True(t, f.yes("IdleHint"))

	var manager map[string]dbus.Variant
	require.NoError(t, d.call(dbusapi.ManagerPath, "org.freedesktop.DBus.Properties.GetAll", []any{dbusapi.ManagerInterface}, &manager))
	assert.EqualValues(t, 1, manager["NWaiting"].Value())
	assert.Equal(t, [][]any{{"asks", "permission", dbusapi.SessionPath("asks")}}, manager["Attention"].Value())

	open2()
	s.wants("", "working")
	assert.Equal(t, []string{"permission"}, d.requested(mark), "once, though it was reported twice")
	told := -1
	signals, _ := d.heard.since(mark)
	for i, signal := range signals {
		if changed, invalidated, ok := sessionChanged(signal, "asks"); ok && changed["Attention"].Value() == "permission" {
			told = i
			assert.Contains(t, invalidated, "AttentionMessage")
		}
		if signal.Name == dbusapi.ManagerInterface+".AttentionRequested" {
			assert.Greater(t, i, told, "after PropertiesChanged")
			assert.NotEqual(t, -1, told)
		}
		assert.NotContains(t, strings.ReplaceAll(variantText(signal), "\n", " "), "/tmp/x", "what an agent asks is broadcast to nobody")
	}
	assert.NotContains(t, d.log.String(), "/tmp/x")

	refused(t, d.manager("ReportActivity", []any{"idle", map[string]dbus.Variant{}}), dbusapi.NoSessionForPID, "in no session")
	refused(t, d.manager("ReportActivity", []any{"idle", map[string]dbus.Variant{"Session": dbus.MakeVariant("asks")}}), dbusapi.InvalidArgs, `"Session"`)
	refused(t, d.manager("ReportActivity", []any{"idle", map[string]dbus.Variant{"Reason": dbus.MakeVariant(1)}}), dbusapi.InvalidArgs, "Reason")
}

func variantText(s *dbus.Signal) string {
	text, _ := json.Marshal(s.Body)
	return string(text)
}

// sessionChanged reads the PropertiesChanged of a session; ok is false for any other signal.
func sessionChanged(s *dbus.Signal, id string) (changed map[string]dbus.Variant, invalidated []string, ok bool) {
	if s.Name != propertiesChanged || s.Path != dbusapi.SessionPath(id) || len(s.Body) != 3 {
		return nil, nil, false
	}
	changed, _ = s.Body[1].(map[string]dbus.Variant)
	invalidated, _ = s.Body[2].([]string)
	return changed, invalidated, true
}

// TestAttention_SurvivesDaemonRestart, however that ends: what was reported, what the shim has
// heard, and what somebody has taken note of.
func TestAttention_SurvivesDaemonRestart(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"told to end": syscall.SIGTERM, "killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			d := startDaemon(t, "IdleAfterSec=300ms")
			asks := d.run(t, "asks", reports("waiting", "Reason", "question", "Message", "which one?")+"; exec sleep 1000")
			known := d.run(t, "known", reports("idle", "Reason", "turn-ended", "Message", "all done")+"; exec sleep 1000")
			rings := d.run(t, "rings", `printf "\a"; exec sleep 1000`)
			seen := d.run(t, "seen", `printf "\a"; exec sleep 1000`)
			failed := d.run(t, "failed", "exit 3")
			over, stale := d.run(t, "over", "exit 4"), d.run(t, "stale", "exec sleep 1000")
			stale.become("running")
			require.NoError(t, syscall.Kill(slices.Min(stale.processes()["tmux: server"]), syscall.SIGKILL))
			asks.wants("question", "waiting")
			rings.wants("bell", "waiting")
			failed.wants("failed", "unknown")
			for _, s := range []*subject{seen, over, stale} {
				s.wait("wanting somebody", func(f facts) bool { return f.text("Attention") != "" })
				s.must("Acknowledge")
				assert.Empty(t, s.facts().text("Attention"))
			}
			known.wants("turn-ended", "idle")
			known.must("Acknowledge")
			assert.True(t, known.facts().yes("AttentionAcknowledged"))
			seen.wants("", "idle")
			stale.wait("silent", func(f facts) bool { return f.text("Activity") == "idle" })

			raised := asks.facts().time("AttentionTimestamp")
			d.kill(signal)
			d.launch()
			f := asks.wants("question", "waiting")
			assert.Equal(t, "which one?", f.text("AttentionMessage"))
			assert.Equal(t, raised, f.time("AttentionTimestamp"))
			assert.WithinDuration(t, time.Now(), raised, time.Minute)
			assert.False(t, f.yes("AttentionAcknowledged"))
			f = known.wants("turn-ended", "idle")
			assert.Equal(t, "all done", f.text("AttentionMessage"))
			assert.True(t, f.yes("AttentionAcknowledged"))
			assert.Equal(t, "bell", rings.wants("bell", "waiting").text("AttentionSource"))
			failed.wants("failed", "unknown")
			seen.wants("", "idle")
			over.wants("", "unknown")
			stale.wants("", "idle")
			assert.Equal(t, "stale", stale.facts().text("State"))
		})
	}
}

// attach attaches a terminal to the session, until the test ends or detach is called.
func (s *subject) attach() (detach func()) {
	s.t.Helper()
	return s.attachTo(nil)
}

// attachTo is attach with what the terminal shows.
func (s *subject) attachTo(screen io.Writer) (detach func()) {
	s.t.Helper()
	var argv, environment []string
	require.NoError(s.t, s.call(dbusapi.SessionPath(s.id), dbusapi.SessionInterface+".GetAttachCommand", nil, &argv, &environment))
	terminal := exec.Command("script", "-qec", strings.Join(argv, " "), "/dev/null")
	terminal.Stdout = screen
	_, err := terminal.StdinPipe() // open until it ends: script(1) types ^D where its input does
	require.NoError(s.t, err)
	terminal.Env = append(slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "TMUX") }), "TERM=xterm")
	require.NoError(s.t, terminal.Start())
	socket := filepath.Join(s.runtimeDir(s.id), "tmux")
	testbed.Poll(s.t, "a terminal is attached", func() bool {
		info, err := os.Stat(socket)
		return err == nil && info.Mode()&0o100 != 0
	})
	return func() {
		s.t.Helper()
		require.NoError(s.t, exec.Command("tmux", "-S", socket, "detach-client", "-s", "="+s.id).Run())
		require.NoError(s.t, terminal.Wait())
	}
}

// TestAttention_IsAcknowledgedByAttaching: with tmux's own command, which tells nobody but its
// server.
func TestAttention_IsAcknowledgedByAttaching(t *testing.T) {
	d := startDaemon(t)
	pass, open := d.gate(t, "ended")
	s := d.run(t, "rings", `printf "\a"; `+pass)
	s.wait("ringing", func(f facts) bool { return f.text("Attention") == "bell" })
	detach := s.attach()
	s.wait("seen", func(f facts) bool { return f.text("Attention") == "" })
	mark := d.heard.mark()
	open()
	s.become("completed")
	assert.Empty(t, s.facts().text("Attention"), "under somebody's eyes")
	assert.Empty(t, d.requested(mark))
	detach()

	asks := d.run(t, "asks", reports("waiting", "Reason", "question", "Message", "which?")+"; exec sleep 1000")
	asks.wants("question", "waiting")
	mark = d.heard.mark()
	detach = asks.attach()
	f := asks.wait("seen", func(f facts) bool { return f.yes("AttentionAcknowledged") })
	assert.Equal(t, "question which?", f.text("Attention")+" "+f.text("AttentionMessage"), "it has not been answered")
	detach()
	assert.Empty(t, d.requested(mark))
	asks.must("SendInput", "this one", dbusapi.InputEnter)
	f = asks.facts()
	assert.Empty(t, f.text("Attention")+f.text("AttentionMessage"))
	assert.False(t, f.yes("AttentionAcknowledged"))

	s.must("Start")
	open()
	s.become("completed")
	assert.Equal(t, "completed", s.facts().text("Attention"))
	detach = s.attach()
	s.wait("seen", func(f facts) bool { return f.text("Attention") == "" })
	detach()
}

// TestSendInput_IfWaitingAnswersOnce: an answer is given once.
func TestSendInput_IfWaitingAnswersOnce(t *testing.T) {
	d := startDaemon(t)
	s := d.run(t, "asks", `stty -echo; `+reports("waiting", "Reason", "question")+`; read answer; echo "$answer" >`+d.dir+`/answer; exec sleep 1000`)
	s.wants("question", "waiting")
	const flags = dbusapi.InputEnter | dbusapi.InputIfWaiting
	s.must("SendInput", "blue", flags)
	assert.Empty(t, s.facts().text("Attention"))
	refused(t, s.do("SendInput", "red", flags), dbusapi.NotWaiting, `"asks"`)
	assert.Equal(t, "blue\n", s.file("answer"))
}

// define defines an agent.
func (d *corrald) define(t *testing.T, name string, lines ...string) {
	t.Helper()
	d.write("config/corral/agents/"+name+".agent", "[Agent]\n"+strings.Join(lines, "\n")+"\n")
	require.NoError(t, d.manager("Reload", nil))
}

// createAs creates a session of that agent, and returns once it runs.
func (d *corrald) createAs(agent, id string) error {
	var path dbus.ObjectPath
	return d.manager("CreateSession", []any{agent, spec{"Id": id, "WorkingDirectory": d.dir}.variants()}, &id, &path)
}

// TestTypeNotify_WaitsForReady says itself when it is ready. Nobody else can say so for it.
func TestTypeNotify_WaitsForReady(t *testing.T) {
	d := startDaemon(t)
	pass, open := d.gate(t, "ready")
	pass2, open2 := d.gate(t, "ended")
	d.write("agent.sh", strings.Join([]string{pass, `systemd-notify --ready --status="three of four"`, pass2}, "\n"))
	d.define(t, "server", "Command=sh "+d.dir+"/agent.sh", "Type=notify")
	started := make(chan error, 1)
	go func() {
		started <- d.createAs("server", "web")
	}()
	socket := filepath.Join(d.runtimeDir("web"), "notify")
	s := &subject{d, t, "web"}
	d.await(t, 0, "the session", func(signal *dbus.Signal) bool { return signal.Name == dbusapi.ManagerInterface+".SessionNew" })
	s.wait("there", func(f facts) bool { return f.yes("AgentAlive") })
	stranger, err := net.Dial("unixgram", socket)
	require.NoError(t, err)
	_, err = stranger.Write([]byte("READY=1\nSTATUS=I am it"))
	require.NoError(t, err)
	require.NoError(t, stranger.Close())

	// A daemon that comes meanwhile waits on.
	d.kill(syscall.SIGKILL)
	require.Error(t, <-started)
	d.launch()
	f := s.wait("there", func(f facts) bool { return f.yes("AgentAlive") })
	assert.Equal(t, "starting", f.text("State"))
	assert.Empty(t, f.text("StatusText"), "a stranger is not heard")
	open()
	s.become("running")
	assert.Equal(t, "three of four", s.wait("telling", func(f facts) bool { return f.text("StatusText") != "" }).text("StatusText"))
	open2()
	s.become("completed")
	assert.NoFileExists(t, socket)
}

// TestIdleSuspend_ResumesOnInputOrAttach, and goes on as soon as somebody wants it.
func TestIdleSuspend_ResumesOnInputOrAttach(t *testing.T) {
	d := startDaemon(t, "IdleAfterSec=200ms")
	d.write("agent.sh", `echo run >>`+d.dir+`/runs; stty -echo; while read line; do echo "$line" >>`+d.dir+`/lines; done`)
	d.define(t, "reader", "Command=sh "+d.dir+"/agent.sh", "IdleSuspendSec=2s")
	require.NoError(t, d.createAs("reader", "idle"))
	s := &subject{d, t, "idle"}
	f := s.become("suspended")
	assert.Equal(t, "its agent was idle for 2s", f.text("Reason"))
	assert.Empty(t, f.text("Attention"))

	s.must("SendInput", "go on", dbusapi.InputEnter)
	waitFile(t, filepath.Join(d.dir, "lines"), "go on\n")
	s.become("suspended")
	detach := s.attach()
	s.become("running")
	waitFile(t, filepath.Join(d.dir, "runs"), "run\nrun\nrun\n")
	detach()
	s.become("suspended") // and not before
	assert.Equal(t, 3, s.facts().number("NRuns"))
}

// TestIdleAfterSec_DefinitionOverridesConfiguration: agents fall silent at the same time, and each
// is idle after the time of its own definition, or else after the configured one.
func TestIdleAfterSec_DefinitionOverridesConfiguration(t *testing.T) {
	for _, row := range []struct{ conf, own, becomes string }{
		{"IdleAfterSec=1h", "IdleAfterSec=100ms", "own"},
		{"IdleAfterSec=100ms", "IdleAfterSec=1h", "plain"},
	} {
		d := startDaemon(t, row.conf)
		d.define(t, "own", "Command=sh -c 'echo out; exec sleep 1000'", row.own)
		d.define(t, "plain", "Command=sh -c 'echo out; exec sleep 1000'")
		activity := func(id string) string { return (&subject{d, t, id}).facts().text("Activity") }
		for _, name := range []string{"own", "plain"} {
			require.NoError(t, d.createAs(name, name))
			s := &subject{d, t, name}
			s.wait("known to be active", func(f facts) bool { return f.text("Activity") != "unknown" })
		}
		(&subject{d, t, row.becomes}).wait("idle", func(f facts) bool { return f.text("Activity") == "idle" })
		for _, name := range []string{"own", "plain"} {
			want := "working"
			if name == row.becomes {
				want = "idle"
			}
			assert.Equal(t, want, activity(name), "%s with %s and %s", name, row.conf, row.own)
		}
		d.end()
	}
}
