package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed"
)

// installation is Corral as packages install it: its units in the user's systemd, its daemon as a
// service.
type installation struct {
	t           *testing.T
	dir         string // of unit files
	home        string
	environment []string
}

func newInstallation(t *testing.T) *installation {
	t.Helper()
	u := &installation{t: t, dir: filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "systemd/user"), home: testbed.Dir(t)}
	programs := testbed.Programs(t)
	bin := filepath.Dir(programs.Corralctl)
	u.environment = append(os.Environ(), "PATH="+bin+":/usr/local/bin:/usr/bin:/bin", "HOME="+u.home)
	for _, name := range []string{"corrald.service", "corral@.service"} {
		text, err := os.ReadFile("../../packaging/" + name + ".in")
		require.NoError(t, err)
		u.file(name, strings.ReplaceAll(string(text), "@bindir@", bin))
	}
	const dropIn = "[Service]\nEnvironment=HOME=%[1]s XDG_STATE_HOME=%[1]s/state XDG_CONFIG_HOME=%[1]s/config\n" +
		"Environment=CORRAL_SHIM=%[2]s\n"
	u.file("corrald.service.d/home.conf", fmt.Sprintf(dropIn, u.home, programs.Shim))
	u.load()
	testbed.Systemctl(t, "start", "corrald.service")
	t.Cleanup(func() {
		if t.Failed() {
			status := exec.Command("systemctl", "--user", "--no-pager", "--full",
				"status", "corrald.service", "corral@*.service")
			text, _ := status.CombinedOutput()
			t.Logf("%s", text)
		}
		_ = exec.Command("systemctl", "--user", "stop", "corral@*.timer", "corral@*.service", "corrald.service").Run()
		_ = exec.Command("systemctl", "--user", "kill", "--signal=KILL", "app-corral-*.scope").Run()
		_ = exec.Command("systemctl", "--user", "reset-failed").Run()
	})
	return u
}

// file writes a unit file or a drop-in, and removes it at the end of the test.
func (u *installation) file(name, text string) {
	u.t.Helper()
	path := filepath.Join(u.dir, name)
	require.NoError(u.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(u.t, os.WriteFile(path, []byte(text), 0o644))
	u.t.Cleanup(func() {
		_ = os.Remove(path)
		_ = exec.Command("systemctl", "--user", "daemon-reload").Run()
	})
}

func (u *installation) load() {
	u.t.Helper()
	testbed.Systemctl(u.t, "daemon-reload")
}

// corralctl runs corralctl in the home directory, and returns what it printed and its exit code.
func (u *installation) corralctl(args ...string) (string, int) {
	command := exec.Command(testbed.Programs(u.t).Corralctl, args...)
	command.Env, command.Dir = u.environment, u.home
	text, _ := command.CombinedOutput()
	return strings.TrimSpace(string(text)), command.ProcessState.ExitCode()
}

func (u *installation) must(args ...string) string {
	u.t.Helper()
	text, code := u.corralctl(args...)
	require.Zero(u.t, code, "corralctl %q: %s", args, text)
	return text
}

// session creates a session that runs a shell script, and does not start it.
func (u *installation) session(id, script string) {
	u.t.Helper()
	u.must("run", "--id", id, "--no-start", "--", "sh", "-c", script)
}

func (u *installation) state(id string) string {
	u.t.Helper()
	return u.must("show", "-P", "State", id)
}

func (u *installation) runs(id string) string {
	u.t.Helper()
	return u.must("show", "-P", "NRuns", id)
}

// unit returns what systemd reports about the session's unit: its state, its result and the last
// exit code.
func (u *installation) unit(id string) string {
	u.t.Helper()
	var all []string
	for _, name := range []string{"ActiveState", "Result", "ExecMainStatus"} {
		all = append(all, testbed.Systemctl(u.t, "show", "-P", name, "corral@"+id))
	}
	return strings.Join(all, " ")
}

func (u *installation) becomes(id, what string) {
	u.t.Helper()
	testbed.Poll(u.t, "corral@"+id+" is "+what, func() bool { return u.unit(id) == what })
}

func TestAsUnit_FollowsItsSession(t *testing.T) {
	u := newInstallation(t)
	u.session("review", "exec sleep 1000")
	testbed.Systemctl(t, "start", "corral@review")
	assert.Equal(t, "running", u.state("review"), "systemctl start returns once the agent runs")
	assert.Equal(t, "active success 0", u.unit("review"))
	testbed.Poll(t, "systemctl shows the state", func() bool {
		return strings.HasPrefix(testbed.Systemctl(t, "show", "-P", "StatusText", "corral@review"), "running")
	})
	assert.Contains(t, testbed.Systemctl(t, "show", "-P", "ControlGroup", "corral@review"), "/session.slice/")

	testbed.Systemctl(t, "stop", "corral@review")
	assert.Equal(t, "suspended", u.state("review"))
	assert.Equal(t, "inactive success 0", u.unit("review"))

	testbed.Systemctl(t, "start", "corral@review")
	assert.Equal(t, "running 2", u.state("review")+" "+u.runs("review"))
	u.must("restart", "review")
	assert.Equal(t, "active success 0", u.unit("review"), "a restart of the session keeps the unit active")
	assert.Equal(t, "running 3", u.state("review")+" "+u.runs("review"))
	u.must("stop", "review")
	u.becomes("review", "inactive success 0")

	u.must("start", "review")
	testbed.Systemctl(t, "start", "corral@review")
	assert.Equal(t, "running 4", u.state("review")+" "+u.runs("review"), "a live session is joined")
	testbed.Systemctl(t, "stop", u.must("show", "-P", "Unit", "review"))
	u.becomes("review", "inactive success 0")
	assert.Equal(t, "stopped", u.state("review"))

	testbed.Systemctl(t, "start", "corral@review")
	u.must("suspend", "review")
	u.becomes("review", "inactive success 0")
	testbed.Systemctl(t, "start", "corral@review")
	u.must("rm", "--force", "review")
	u.becomes("review", "inactive success 0")
}

// TestAsUnit_IsActiveWhileItsSessionIsQueued: stopping the unit takes the session out of the queue.
func TestAsUnit_IsActiveWhileItsSessionIsQueued(t *testing.T) {
	u := newInstallation(t)
	require.NoError(t, os.MkdirAll(u.home+"/config/corral", 0o700))
	require.NoError(t, os.WriteFile(u.home+"/config/corral/corral.conf", []byte("[Corral]\nMaxRunning=1\n"), 0o600))
	u.must("reload")
	u.session("first", "exec sleep 1000")
	u.session("review", "exec sleep 1000")
	u.must("start", "first")
	testbed.Systemctl(t, "start", "corral@review")
	assert.Equal(t, "active success 0", u.unit("review"))
	assert.Equal(t, "created, queued", testbed.Systemctl(t, "show", "-P", "StatusText", "corral@review"))
	testbed.Systemctl(t, "stop", "corral@review")
	assert.Equal(t, "inactive success 0", u.unit("review"))
	assert.Equal(t, "0", u.must("show", "-P", "QueuePosition", "review"))

	testbed.Systemctl(t, "start", "corral@review")
	u.must("stop", "review")
	u.becomes("review", "inactive success 0")
	testbed.Systemctl(t, "start", "corral@review")
	u.must("stop", "first")
	u.must("wait", "--until=running", "review")
	assert.Equal(t, "active success 0", u.unit("review"))
}

func TestAsUnit_ExitsWithTheAgentsCode(t *testing.T) {
	u := newInstallation(t)
	for _, row := range []struct{ about, id, script, unit string }{
		{"completed", "good", "exit 0", "inactive success 0"},
		{"the unit fails with the agent's exit code", "bad", "exit 3", "failed exit-code 3"},
		{"a signal is reported as by a shell", "shot", "kill -KILL $$", "failed exit-code 137"},
	} {
		u.session(row.id, row.script)
		_ = exec.Command("systemctl", "--user", "start", "corral@"+row.id).Run() // fails if the agent has failed already
		u.becomes(row.id, row.unit)
	}
	u.must("run", "--id", "nothing", "--no-start", "--", u.home+"/nothing")
	require.Error(t, exec.Command("systemctl", "--user", "start", "corral@nothing").Run())
	assert.Equal(t, "failed exit-code 1", u.unit("nothing"), "an agent that cannot be started")
	require.Error(t, exec.Command("systemctl", "--user", "start", "corral@unknown").Run())
	assert.Equal(t, "failed exit-code 4", u.unit("unknown"), "no such session")
}

// The unit stays active while the daemon is restarted, killed or stopped, and reports an exit that
// happened meanwhile.
func TestAsUnit_SurvivesDaemonRestarts(t *testing.T) {
	u := newInstallation(t)
	u.session("long", "read line <"+u.home+"/wait; exit 5")
	require.NoError(t, exec.Command("mkfifo", u.home+"/wait").Run())
	testbed.Systemctl(t, "start", "corral@long")
	follower := testbed.Systemctl(t, "show", "-P", "MainPID", "corral@long")
	for range 2 {
		testbed.Systemctl(t, "restart", "corrald.service")
	}
	testbed.Systemctl(t, "kill", "--signal=KILL", "corrald.service")
	testbed.Systemctl(t, "restart", "corrald.service", "dbus.service")
	testbed.Poll(t, "the state is reported again", func() bool {
		return strings.HasPrefix(testbed.Systemctl(t, "show", "-P", "StatusText", "corral@long"), "running")
	})
	assert.Equal(t, "active success 0", u.unit("long"))
	assert.Equal(t, follower, testbed.Systemctl(t, "show", "-P", "MainPID", "corral@long"))

	testbed.Systemctl(t, "stop", "corrald.service")
	testbed.Poll(t, "the state is reported as unknown", func() bool {
		return testbed.Systemctl(t, "show", "-P", "StatusText", "corral@long") == "state unknown (corrald is not running)"
	})
	assert.Equal(t, "inactive", testbed.Systemctl(t, "show", "-P", "ActiveState", "corrald.service"),
		"it does not start a daemon that somebody stopped")
	require.NoError(t, os.WriteFile(u.home+"/wait", []byte("\n"), 0o600))
	exitStatus := u.home + "/state/corral/sessions/long/exit_status"
	testbed.WaitFile(t, exitStatus, func(content []byte) bool { return len(content) > 0 })
	assert.Equal(t, "active success 0", u.unit("long"))
	testbed.Systemctl(t, "start", "corrald.service")
	u.becomes("long", "failed exit-code 5")
}

// A timer starts a session again and again, and OnFailure= reacts when it fails, as in the examples
// of docs/man/corral@.service.5.md.
func TestAsUnit_WorksWithTimersAndOnFailure(t *testing.T) {
	u := newInstallation(t)
	u.file("corral@nightly.timer", "[Timer]\nOnActiveSec=0\nOnUnitInactiveSec=200ms\nAccuracySec=1ms\n")
	u.file("corral@nightly.service.d/failure.conf", "[Unit]\nOnFailure=alarm.service\n")
	u.file("alarm.service", "[Service]\nType=oneshot\n"+
		"ExecStart=sh -c 'date >"+u.home+"/alarm'\n")
	u.file("next.service", "[Unit]\nRequires=corral@first.service\nAfter=corral@first.service\n"+
		"[Service]\nType=oneshot\n"+
		"ExecStart=sh -c '"+testbed.Programs(t).Corralctl+" show -P State first >"+u.home+"/first'\n")
	u.load()
	u.session("nightly", "echo >>"+u.home+"/nights; test $(wc -l <"+u.home+"/nights) -lt 3 || "+
		"{ systemctl --user stop corral@nightly.timer; false; }")
	testbed.Systemctl(t, "start", "corral@nightly.timer")
	testbed.WaitFile(t, u.home+"/alarm", func(content []byte) bool { return len(content) > 0 })
	u.becomes("nightly", "failed exit-code 1")
	assert.Equal(t, "3", u.runs("nightly"), "two runs that completed, and one that failed")

	u.session("first", "exec sleep 1000")
	testbed.Systemctl(t, "start", "next.service")
	text, err := os.ReadFile(u.home + "/first")
	require.NoError(t, err)
	assert.Equal(t, "running\n", string(text))
}
