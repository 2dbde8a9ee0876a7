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

// reportCommand returns an sh command that reports an activity as an agent's hook does, with busctl
// alone.
func reportCommand(activity string, details ...string) string {
	words := []string{"busctl", "--user", "call", dbusapi.BusName, string(dbusapi.ManagerPath), dbusapi.ManagerInterface,
		"ReportActivity", "'sa{sv}'", activity}
	words = append(words, string(rune('0'+len(details)/2)))
	for i := 0; i < len(details); i += 2 {
		words = append(words, details[i], "s", "'"+details[i+1]+"'")
	}
	return strings.Join(words, " ")
}

// gate creates a FIFO at which a script waits (pass) until the test calls open.
func (d *corrald) gate(t *testing.T, name string) (pass string, open func()) {
	t.Helper()
	path := filepath.Join(d.dir, name)
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	return "read gate <" + path, func() {
		t.Helper()
		require.NoError(t, os.WriteFile(path, []byte("\n"), 0o600))
	}
}

// waitAttention waits until the session has this Attention ("" for none) and this Activity.
func (s *testSession) waitAttention(attention, activity string) properties {
	s.t.Helper()
	return s.wait(attention+" and "+activity, func(p properties) bool {
		return p.text("Attention") == attention && p.text("Activity") == activity
	})
}

// attentionReasons returns the reasons of the AttentionRequested signals since a mark.
func (d *corrald) attentionReasons(mark int) []string {
	reasons := []string{}
	signals, _ := d.signals.since(mark)
	for _, s := range signals {
		if s.Name == dbusapi.ManagerInterface+".AttentionRequested" {
			reasons = append(reasons, s.Body[2].(string))
		}
	}
	return reasons
}

// TestReport_IsAttributedByControlGroup sends reports from inside a session's scope: the sender's
// control group determines the session.
func TestReport_IsAttributedByControlGroup(t *testing.T) {
	d := startDaemon(t)
	pass1, open1 := d.gate(t, "one")
	pass2, open2 := d.gate(t, "two")
	mark := d.signals.mark()
	ask := reportCommand("waiting", "Reason", "permission", "Message", "may I remove /tmp/x?")
	s := d.run(t, "asks",
		strings.Join([]string{pass1, ask, ask, pass2, "setsid " + reportCommand("working"), "exec sleep 1000"}, "; "))
	s.waitState("running")
	open1()
	p := s.waitAttention("permission", "waiting")
	assert.Equal(t, "report", p.text("AttentionSource"))
	assert.Equal(t, "may I remove /tmp/x?", p.text("AttentionMessage"))
	assert.True(t, p.isTrue("IdleHint"))

	var manager map[string]dbus.Variant
	require.NoError(t, d.call(dbusapi.ManagerPath, "org.freedesktop.DBus.Properties.GetAll",
		[]any{dbusapi.ManagerInterface}, &manager))
	assert.EqualValues(t, 1, manager["NWaiting"].Value())
	assert.Equal(t, [][]any{{"asks", "permission", dbusapi.SessionPath("asks")}}, manager["Attention"].Value())

	open2()
	s.waitAttention("", "working")
	assert.Equal(t, []string{"permission"}, d.attentionReasons(mark), "once, though it was reported twice")
	announced := -1
	signals, _ := d.signals.since(mark)
	for i, signal := range signals {
		if changed, invalidated, ok := sessionChanged(signal, "asks"); ok && changed["Attention"].Value() == "permission" {
			announced = i
			assert.Contains(t, invalidated, "AttentionMessage")
		}
		if signal.Name == dbusapi.ManagerInterface+".AttentionRequested" {
			assert.Greater(t, i, announced, "after PropertiesChanged")
			assert.NotEqual(t, -1, announced)
		}
		assert.NotContains(t, strings.ReplaceAll(bodyText(signal), "\n", " "), "/tmp/x",
			"an agent's question is not broadcast")
	}
	assert.NotContains(t, d.log.String(), "/tmp/x")

	assertRefused(t, d.manager("ReportActivity", []any{"idle", map[string]dbus.Variant{}}),
		dbusapi.NoSessionForPID, "in no session")
	assertRefused(t, d.manager("ReportActivity",
		[]any{"idle", map[string]dbus.Variant{"Session": dbus.MakeVariant("asks")}}), dbusapi.InvalidArgs, `"Session"`)
	assertRefused(t, d.manager("ReportActivity", []any{"idle", map[string]dbus.Variant{"Reason": dbus.MakeVariant(1)}}),
		dbusapi.InvalidArgs, "Reason")
}

func bodyText(s *dbus.Signal) string {
	text, _ := json.Marshal(s.Body)
	return string(text)
}

// sessionChanged parses the PropertiesChanged of a session; ok is false for any other signal.
func sessionChanged(s *dbus.Signal, id string) (changed map[string]dbus.Variant, invalidated []string, ok bool) {
	if s.Name != propertiesChanged || s.Path != dbusapi.SessionPath(id) || len(s.Body) != 3 {
		return nil, nil, false
	}
	changed, _ = s.Body[1].(map[string]dbus.Variant)
	invalidated, _ = s.Body[2].([]string)
	return changed, invalidated, true
}

// TestAttention_SurvivesDaemonRestart checks that the next daemon, after an exit or a crash, knows
// what agents have reported, what shims have received, and what was acknowledged.
func TestAttention_SurvivesDaemonRestart(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"exits": syscall.SIGTERM, "killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			d := startDaemon(t, "IdleAfterSec=300ms")
			asks := d.run(t, "asks", reportCommand("waiting", "Reason", "question", "Message", "which one?")+"; exec sleep 1000")
			known := d.run(t, "known", reportCommand("idle", "Reason", "turn-ended", "Message", "all done")+"; exec sleep 1000")
			rings := d.run(t, "rings", `printf "\a"; exec sleep 1000`)
			seen := d.run(t, "seen", `printf "\a"; exec sleep 1000`)
			failed := d.run(t, "failed", "exit 3")
			over, stale := d.run(t, "over", "exit 4"), d.run(t, "stale", "exec sleep 1000")
			stale.waitState("running")
			require.NoError(t, syscall.Kill(stale.process(tmuxName), syscall.SIGKILL))
			asks.waitAttention("question", "waiting")
			rings.waitAttention("bell", "waiting")
			failed.waitAttention("failed", "unknown")
			for _, s := range []*testSession{seen, over, stale} {
				s.wait("in need of attention", func(p properties) bool { return p.text("Attention") != "" })
				s.must("Acknowledge")
				assert.Empty(t, s.properties().text("Attention"))
			}
			known.waitAttention("turn-ended", "idle")
			known.must("Acknowledge")
			assert.True(t, known.properties().isTrue("AttentionAcknowledged"))
			seen.waitAttention("", "idle")
			stale.wait("idle", func(p properties) bool { return p.text("Activity") == "idle" })

			raised := asks.properties().time("AttentionTimestamp")
			d.kill(signal)
			d.launch()
			p := asks.waitAttention("question", "waiting")
			assert.Equal(t, "which one?", p.text("AttentionMessage"))
			assert.Equal(t, raised, p.time("AttentionTimestamp"))
			assert.WithinDuration(t, time.Now(), raised, time.Minute)
			assert.False(t, p.isTrue("AttentionAcknowledged"))
			p = known.waitAttention("turn-ended", "idle")
			assert.Equal(t, "all done", p.text("AttentionMessage"))
			assert.True(t, p.isTrue("AttentionAcknowledged"))
			assert.Equal(t, "bell", rings.waitAttention("bell", "waiting").text("AttentionSource"))
			failed.waitAttention("failed", "unknown")
			seen.waitAttention("", "idle")
			over.waitAttention("", "unknown")
			stale.waitAttention("", "idle")
			assert.Equal(t, "stale", stale.properties().text("State"))
		})
	}
}

// attach attaches a terminal to the session, until the test ends or detach is called.
func (s *testSession) attach() (detach func()) {
	s.t.Helper()
	return s.attachTo(nil)
}

// attachTo is attach with a writer for what the terminal shows.
func (s *testSession) attachTo(screen io.Writer) (detach func()) {
	s.t.Helper()
	var argv, environment []string
	require.NoError(s.t, s.call(dbusapi.SessionPath(s.id), dbusapi.SessionInterface+".GetAttachCommand",
		nil, &argv, &environment))
	terminal := exec.Command("script", "-qec", strings.Join(argv, " "), "/dev/null")
	terminal.Stdout = screen
	_, err := terminal.StdinPipe() // open until it exits: script(1) types ^D at the end of its input
	require.NoError(s.t, err)
	terminal.Env = append(slices.DeleteFunc(os.Environ(), func(e string) bool {
		return strings.HasPrefix(e, "TMUX")
	}), "TERM=xterm")
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

// TestAttention_IsAcknowledgedByAttaching attaches with tmux's own command, which notifies nobody
// but the tmux server.
func TestAttention_IsAcknowledgedByAttaching(t *testing.T) {
	d := startDaemon(t)
	pass, open := d.gate(t, "ended")
	s := d.run(t, "rings", `printf "\a"; `+pass)
	s.wait("in need of attention for its bell", func(p properties) bool { return p.text("Attention") == "bell" })
	detach := s.attach()
	s.wait("acknowledged", func(p properties) bool { return p.text("Attention") == "" })
	mark := d.signals.mark()
	open()
	s.waitState("completed")
	assert.Empty(t, s.properties().text("Attention"), "a terminal is attached")
	assert.Empty(t, d.attentionReasons(mark))
	detach()

	asks := d.run(t, "asks", reportCommand("waiting", "Reason", "question", "Message", "which?")+"; exec sleep 1000")
	asks.waitAttention("question", "waiting")
	mark = d.signals.mark()
	detach = asks.attach()
	p := asks.wait("acknowledged", func(p properties) bool { return p.isTrue("AttentionAcknowledged") })
	assert.Equal(t, "question which?", p.text("Attention")+" "+p.text("AttentionMessage"),
		"the question has not been answered")
	detach()
	assert.Empty(t, d.attentionReasons(mark))
	asks.must("SendInput", "this one", dbusapi.InputEnter)
	p = asks.properties()
	assert.Empty(t, p.text("Attention")+p.text("AttentionMessage"))
	assert.False(t, p.isTrue("AttentionAcknowledged"))

	s.must("Start")
	open()
	s.waitState("completed")
	assert.Equal(t, "completed", s.properties().text("Attention"))
	detach = s.attach()
	s.wait("acknowledged", func(p properties) bool { return p.text("Attention") == "" })
	detach()
}

// TestSendInput_IfWaitingAnswersOnce checks that a question gets only one answer.
func TestSendInput_IfWaitingAnswersOnce(t *testing.T) {
	d := startDaemon(t)
	s := d.run(t, "asks", `stty -echo; `+reportCommand("waiting", "Reason", "question")+
		`; read answer; echo "$answer" >`+d.dir+`/answer; exec sleep 1000`)
	s.waitAttention("question", "waiting")
	const flags = dbusapi.InputEnter | dbusapi.InputIfWaiting
	s.must("SendInput", "blue", flags)
	assert.Empty(t, s.properties().text("Attention"))
	assertRefused(t, s.do("SendInput", "red", flags), dbusapi.NotWaiting, `"asks"`)
	assert.Equal(t, "blue\n", s.awaitFile("answer"))
}

// defineAgent adds an agent definition.
func (d *corrald) defineAgent(t *testing.T, name string, lines ...string) {
	t.Helper()
	d.write("config/corral/agents/"+name+".agent", "[Agent]\n"+strings.Join(lines, "\n")+"\n")
	require.NoError(t, d.manager("Reload", nil))
}

// createAs creates a session of that agent, and returns once it runs.
func (d *corrald) createAs(agent, id string) error {
	var path dbus.ObjectPath
	return d.manager("CreateSession", []any{agent, spec{"Id": id, "WorkingDirectory": d.dir}.variants()}, &id, &path)
}

// TestTypeNotify_WaitsForReady checks that a session with Type=notify is running once its agent
// sends READY=1, and that another process cannot send it for the agent.
func TestTypeNotify_WaitsForReady(t *testing.T) {
	d := startDaemon(t)
	pass, open := d.gate(t, "ready")
	pass2, open2 := d.gate(t, "ended")
	d.write("agent.sh", strings.Join([]string{pass, `systemd-notify --ready --status="three of four"`, pass2}, "\n"))
	d.defineAgent(t, "server", "Command=sh "+d.dir+"/agent.sh", "Type=notify")
	started := make(chan error, 1)
	go func() {
		started <- d.createAs("server", "web")
	}()
	socket := filepath.Join(d.runtimeDir("web"), "notify")
	s := &testSession{d, t, "web"}
	d.await(t, 0, "the session", func(signal *dbus.Signal) bool {
		return signal.Name == dbusapi.ManagerInterface+".SessionNew"
	})
	s.wait("running its agent", func(p properties) bool { return p.isTrue("AgentAlive") })
	impostor, err := net.Dial("unixgram", socket)
	require.NoError(t, err)
	_, err = impostor.Write([]byte("READY=1\nSTATUS=I am it"))
	require.NoError(t, err)
	require.NoError(t, impostor.Close())

	// A daemon that starts in the meantime keeps waiting.
	d.kill(syscall.SIGKILL)
	require.Error(t, <-started)
	d.launch()
	p := s.wait("running its agent", func(p properties) bool { return p.isTrue("AgentAlive") })
	assert.Equal(t, "starting", p.text("State"))
	assert.Empty(t, p.text("StatusText"), "messages of other processes are ignored")
	open()
	s.waitState("running")
	assert.Equal(t, "three of four", s.wait("showing its status text", func(p properties) bool {
		return p.text("StatusText") != ""
	}).text("StatusText"))
	open2()
	s.waitState("completed")
	assert.NoFileExists(t, socket)
}

// TestIdleSuspend_ResumesOnInputOrAttach checks that an idle agent is suspended, and resumed when
// somebody sends input or attaches.
func TestIdleSuspend_ResumesOnInputOrAttach(t *testing.T) {
	d := startDaemon(t, "IdleAfterSec=200ms")
	d.write("agent.sh", `echo run >>`+d.dir+`/runs; stty -echo; while read line; do echo "$line" >>`+d.dir+`/lines; done`)
	d.defineAgent(t, "reader", "Command=sh "+d.dir+"/agent.sh", "IdleSuspendSec=2s")
	require.NoError(t, d.createAs("reader", "idle"))
	s := &testSession{d, t, "idle"}
	p := s.waitState("suspended")
	assert.Equal(t, "its agent was idle for 2s", p.text("Reason"))
	assert.Empty(t, p.text("Attention"))

	s.must("SendInput", "go on", dbusapi.InputEnter)
	waitFile(t, filepath.Join(d.dir, "lines"), "go on\n")
	s.waitState("suspended")
	detach := s.attach()
	s.waitState("running")
	waitFile(t, filepath.Join(d.dir, "runs"), "run\nrun\nrun\n")
	detach()
	s.waitState("suspended") // but not while a terminal was attached
	assert.Equal(t, 3, s.properties().number("NRuns"))
}

// TestIdleAfterSec_DefinitionOverridesConfiguration checks two agents that stop printing at the
// same time: each is idle after the IdleAfterSec= of its own definition, or else after the
// configured one.
func TestIdleAfterSec_DefinitionOverridesConfiguration(t *testing.T) {
	for _, row := range []struct{ conf, own, becomes string }{
		{"IdleAfterSec=1h", "IdleAfterSec=100ms", "own"},
		{"IdleAfterSec=100ms", "IdleAfterSec=1h", "plain"},
	} {
		d := startDaemon(t, row.conf)
		d.defineAgent(t, "own", "Command=sh -c 'echo out; exec sleep 1000'", row.own)
		d.defineAgent(t, "plain", "Command=sh -c 'echo out; exec sleep 1000'")
		activity := func(id string) string { return (&testSession{d, t, id}).properties().text("Activity") }
		for _, name := range []string{"own", "plain"} {
			require.NoError(t, d.createAs(name, name))
			s := &testSession{d, t, name}
			s.wait("in a known activity", func(p properties) bool { return p.text("Activity") != "unknown" })
		}
		(&testSession{d, t, row.becomes}).wait("idle", func(p properties) bool { return p.text("Activity") == "idle" })
		for _, name := range []string{"own", "plain"} {
			want := "working"
			if name == row.becomes {
				want = "idle"
			}
			assert.Equal(t, want, activity(name), "%s with %s and %s", name, row.conf, row.own)
		}
		d.stop()
	}
}
