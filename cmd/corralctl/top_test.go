package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/testbed"
)

// view is a terminal that corralctl top runs in: a tmux of its own, with keys and a screen.
type view struct {
	t      *testing.T
	stage  *stage
	socket string
}

// newView runs a command line in a terminal of that size.
func newView(t *testing.T, s *stage, width, height, command string) *view {
	t.Helper()
	v := &view{t, s, filepath.Join(testbed.Dir(t), "view")}
	v.tmux("-f", "/dev/null", "new-session", "-d", "-x", width, "-y", height, command+`; echo "top ended with $?"; exec sleep infinity`)
	t.Cleanup(func() { v.tmux("kill-server") })
	return v
}

func (v *view) tmux(args ...string) string {
	v.t.Helper()
	command := exec.Command("tmux", append([]string{"-S", v.socket}, args...)...)
	command.Env = append(v.stage.environment, "TERM=xterm-256color")
	output, err := command.CombinedOutput()
	require.NoError(v.t, err, "tmux %q: %s", args, output)
	return string(output)
}

func (v *view) keys(keys ...string) { v.tmux(append([]string{"send-keys"}, keys...)...) }

// shows waits until each of these texts is on the screen, and returns it.
func (v *view) shows(texts ...string) string {
	v.t.Helper()
	screen := ""
	v.t.Cleanup(func() {
		if v.t.Failed() {
			v.t.Logf("the screen was last:\n%s", screen)
		}
	})
	for _, text := range texts {
		testbed.Poll(v.t, "the screen shows "+text, func() bool {
			screen = v.tmux("capture-pane", "-p")
			return strings.Contains(screen, text)
		})
	}
	return screen
}

// hides waits until a text is no longer on the screen.
func (v *view) hides(text string) {
	v.t.Helper()
	testbed.Poll(v.t, "the screen no longer shows "+text, func() bool { return !strings.Contains(v.tmux("capture-pane", "-p"), text) })
}

// above waits until the row of one session is above that of another.
func (v *view) above(one, other string) {
	v.t.Helper()
	testbed.Poll(v.t, one+" is above "+other, func() bool {
		screen := v.tmux("capture-pane", "-p")
		return strings.Contains(screen, " "+one+" ") && strings.Index(screen, " "+one+" ") < strings.Index(screen, " "+other+" ")
	})
}

// resize makes the terminal of another size, and waits until what is shown is right for it: header, these titles, keys in the last line.
func (v *view) resize(width, height, titles string) {
	v.t.Helper()
	v.tmux("resize-window", "-x", width, "-y", height)
	testbed.Poll(v.t, "a screen for "+width+"x"+height, func() bool {
		lines := strings.Split(strings.TrimSuffix(v.tmux("capture-pane", "-p"), "\n"), "\n")
		rows, err := strconv.Atoi(height)
		return err == nil && len(lines) == rows && strings.HasPrefix(lines[0], "corral ") && strings.Join(strings.Fields(lines[1]), " ") == titles &&
			strings.Contains(lines[2], "alpha") && strings.HasPrefix(lines[rows-1], "Only alpha")
	})
}

const repeater = `sh -c 'printf "\033[1;35mThe repeater\033[0m\n"; while read -r line; do echo "heard $line"; done'`

func TestTopIsLiveAndDoesWhatKeysSay(t *testing.T) {
	stage := newStage(t)
	stage.run(t, "corralctl run --id alpha -- "+repeater, "")
	v := newView(t, stage, "80", "24", "corralctl top")
	v.shows("1 session", "alpha", "running", "── alpha ──", "The repeater")
	assert.Regexp(t, `\x1b\[35m(\x1b\[[0-9;]*m)*The repeater`, v.tmux("capture-pane", "-ep"), "in its own colours")

	stage.run(t, `corralctl run --wait --id beta -- sh -c 'printf "\033[99;1Hlast words\n"; exit 3' || true`, "")
	v.shows("2 sessions", "beta", "failed")
	v.above("beta", "alpha") // it needs a person
	v.keys("k")
	v.shows("failed: command exited with code 3", "last words")
	v.keys("Space")
	v.shows("Acknowledged beta.")
	v.above("alpha", "beta")
	v.keys("/")
	v.keys("alpha", "Enter")
	v.hides("beta")

	v.keys("s")
	v.shows("Send to alpha")
	v.keys("-l", "good morning")
	v.keys("Enter")
	v.shows("heard good morning")

	v.keys("Enter")
	v.hides("ACTIVITY")
	v.shows("heard good morning")
	v.keys("-l", "from within")
	v.keys("Enter")
	v.shows("heard from within")
	v.keys("C-b", "d")
	v.shows("ACTIVITY", "── alpha ──", "heard from within")

	for _, size := range [][]string{{"150", "40", "ID AGENT STATE ACTIVITY CPU MEMORY TASKS SINCE WORKSPACE"}, {"40", "10", "ID STATE ACTIVITY"}, {"80", "24", "ID AGENT STATE ACTIVITY CPU MEMORY SINCE"}} {
		v.resize(size[0], size[1], size[2])
	}
	v.shows("heard from within")
	v.keys("f")
	v.shows("frozen")
	v.keys("f")
	v.hides("frozen")
	v.keys("S")
	v.shows("Stop alpha?", "lost")
	v.keys("y")
	v.shows("stopped", "heard from within")
	v.keys("z")
	v.shows(`cannot suspend "alpha"`)
	v.keys("d")
	v.shows("Remove alpha?", "~/src/shop stays as it is")
	v.keys("y")
	v.shows("Removed alpha.", "1 session ")
	v.keys("Escape")
	v.shows("beta")
	v.keys("q")
	v.shows("top ended with 0")
}

// To attach is to take note of what it wants, also where somebody else is attached; that it ends meanwhile is no failure to attach.
func TestTopAttachesBesideOthers(t *testing.T) {
	stage := newStage(t)
	stage.run(t, `corralctl run --id asker -- sh -c 'echo ready; while read -r line; do corralctl report waiting --reason question --message "$line"; done'`, "")
	newView(t, stage, "80", "24", "corralctl attach asker").shows("ready")
	stage.run(t, `corralctl send asker "which one?" && until corralctl show -P Attention asker | grep -q question; do :; done`, "")
	v := newView(t, stage, "100", "30", "corralctl top")
	v.shows("which one?")
	v.keys("Enter")
	v.hides("ACTIVITY")
	stage.run(t, `until corralctl show -P AttentionAcknowledged asker | grep -q yes; do :; done; corralctl stop asker`, "")
	assert.NotContains(t, v.shows("ACTIVITY", "stopped"), "cannot attach")
	v.keys("q")
	v.shows("top ended with 0")
}

func TestTopOutlivesTheDaemon(t *testing.T) {
	stage := newStage(t)
	stage.run(t, "corralctl run --id alpha -- sleep infinity", "")
	v := newView(t, stage, "100", "30", "corralctl top")
	v.shows("alpha", "running")

	var pid uint32
	bus := testbed.Bus(t)
	require.NoError(t, bus.BusObject().CallWithContext(t.Context(), "org.freedesktop.DBus.GetConnectionUnixProcessID", 0, dbusapi.BusName).Store(&pid))
	require.NoError(t, syscall.Kill(int(pid), syscall.SIGKILL))
	v.shows("corrald is not running; this is how it was", "alpha")
	v.keys("S")
	v.shows("corrald is not running")

	startDaemon(t, testbed.Programs(t), stage.environment)
	v.hides("corrald is not running")
	stage.run(t, "corralctl run --id beta -- sleep infinity", "")
	v.shows("alpha", "beta", "2 running")
	v.keys("C-c")
	v.shows("top ended with 0")
}

// A daemon that was stopped does not come back because somebody looks at what there was, or answers a question that was asked before.
func TestTopStartsNoDaemon(t *testing.T) {
	u := newUnits(t)
	activation, err := os.ReadFile("../../packaging/io.github.corrald.Corral1.service")
	require.NoError(t, err)
	path := filepath.Join(os.Getenv("XDG_DATA_HOME"), "dbus-1/services/io.github.corrald.Corral1.service")
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, activation, 0o600))
	reload := func() {
		assert.NoError(t, testbed.Bus(t).BusObject().Call("org.freedesktop.DBus.ReloadConfig", 0).Err)
	}
	reload()
	t.Cleanup(func() {
		assert.NoError(t, os.Remove(path))
		reload()
	})
	testbed.Systemctl(t, "stop", "corrald.service")
	u.must("run", "--id", "alpha", "--", "sleep", "infinity") // which starts it

	v := newView(t, &stage{home: u.home, environment: u.environment}, "100", "30", "corralctl top")
	v.shows("alpha", "running")
	v.keys("S")
	v.shows("Stop alpha?")
	testbed.Systemctl(t, "stop", "corrald.service")
	v.shows("corrald is not running; this is how it was")
	v.keys("y")
	v.shows(`cannot stop "alpha": corrald is not running`)
	state, _ := exec.Command("systemctl", "--user", "is-active", "corrald.service").Output()
	assert.Equal(t, "inactive\n", string(state))
}

// Over ssh, of which all that is needed here is that it runs a command, there is no control group to be read: the daemon is asked.
func TestTopOfAnotherMachine(t *testing.T) {
	stage := newStage(t)
	stage.run(t, `mkdir ~/bin && printf '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift 2; exec sh -c "$*"\n' >~/bin/ssh && chmod +x ~/bin/ssh`, "")
	stage.run(t, "corralctl run --id alpha -- "+repeater, "")
	v := newView(t, stage, "100", "30", "PATH=~/bin:$PATH corralctl -H anna@desk top")
	v.shows("on anna@desk", "alpha", "The repeater", "0%", "▁")
	v.keys("a")
	v.hides("ACTIVITY")
	v.keys("-l", "from afar")
	v.keys("Enter")
	v.shows("heard from afar")
	v.keys("C-b", "d")
	v.shows("ACTIVITY", "heard from afar")
	v.keys("q")
	v.shows("top ended with 0")
}

func TestTopNeedsAFullScreen(t *testing.T) {
	v := newView(t, newStage(t), "100", "24", "corralctl top | cat; TERM=dumb corralctl top")
	v.shows("cannot show a full screen: this is no terminal", "cannot show a full screen: this terminal has none (TERM=dumb)", "hint: corralctl monitor", "top ended with 1")
}
