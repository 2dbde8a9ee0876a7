package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/cmd/corralctl/top"
	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/testbed"
)

// topTerminal is a terminal in which corralctl top runs: a pane of a tmux server of its own.
type topTerminal struct {
	t      *testing.T
	stage  *storyRun
	socket string
}

// newTopTerminal runs a command line in a terminal of that size.
func newTopTerminal(t *testing.T, s *storyRun, width, height, command string) *topTerminal {
	t.Helper()
	v := &topTerminal{t, s, filepath.Join(testbed.Dir(t), "view")}
	v.tmux("-f", "/dev/null", "new-session", "-d", "-x", width, "-y", height,
		"unset TMUX; "+command+`; echo "top ended with $?"; exec sleep infinity`)
	t.Cleanup(func() { v.tmux("kill-server") })
	return v
}

func (v *topTerminal) tmux(args ...string) string {
	v.t.Helper()
	command := exec.Command("tmux", append([]string{"-S", v.socket}, args...)...)
	command.Env = append(v.stage.environment, "TERM=xterm-256color")
	output, err := command.CombinedOutput()
	require.NoError(v.t, err, "tmux %q: %s", args, output)
	return string(output)
}

func (v *topTerminal) keys(keys ...string) { v.tmux(append([]string{"send-keys"}, keys...)...) }

// waitFor waits until each of these texts has been on the screen, and returns the last screen.
func (v *topTerminal) waitFor(texts ...string) string {
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

// waitGone waits until a text is no longer on the screen.
func (v *topTerminal) waitGone(text string) {
	v.t.Helper()
	testbed.Poll(v.t, "the screen no longer shows "+text,
		func() bool { return !strings.Contains(v.tmux("capture-pane", "-p"), text) })
}

// waitSelected waits until the row of this session is selected.
func (v *topTerminal) waitSelected(id string) {
	v.t.Helper()
	screen := ""
	v.t.Cleanup(func() {
		if v.t.Failed() {
			v.t.Logf("the screen was last:\n%s", screen)
		}
	})
	testbed.Poll(v.t, id+" is selected", func() bool {
		screen = v.tmux("capture-pane", "-ep")
		return slices.ContainsFunc(strings.Split(screen, "\n"), func(line string) bool {
			return strings.Contains(line, "7m") && strings.Contains(line, "● "+id+" ")
		})
	})
}

// waitAbove waits until the row of one session is above that of another.
func (v *topTerminal) waitAbove(one, other string) {
	v.t.Helper()
	testbed.Poll(v.t, one+" is above "+other, func() bool {
		screen := v.tmux("capture-pane", "-p")
		return strings.Contains(screen, " "+one+" ") &&
			strings.Index(screen, " "+one+" ") < strings.Index(screen, " "+other+" ")
	})
}

// resize resizes the terminal and waits until the screen fits it: header, these titles, and the
// keys in the last line.
func (v *topTerminal) resize(width, height, titles string) {
	v.t.Helper()
	v.tmux("resize-window", "-x", width, "-y", height)
	testbed.Poll(v.t, "a screen for "+width+"x"+height, func() bool {
		lines := strings.Split(strings.TrimSuffix(v.tmux("capture-pane", "-p"), "\n"), "\n")
		rows, err := strconv.Atoi(height)
		return err == nil && len(lines) == rows && strings.HasPrefix(lines[0], "corral ") && titlesOf(lines[1]) == titles &&
			strings.Contains(lines[2], "alpha") && strings.HasPrefix(lines[rows-1], "filter: alpha")
	})
}

// titlesOf returns the titles of the columns except MEMORY and TASKS, which are not shown on a
// machine without these controllers.
func titlesOf(line string) string {
	fields := slices.DeleteFunc(strings.Fields(line),
		func(title string) bool { return title == "MEMORY" || title == "TASKS" })
	return strings.Join(fields, " ")
}

// TestTop_KeysAreInTheManual: the manual documents every key of top.
func TestTop_KeysAreInTheManual(t *testing.T) {
	page, err := os.ReadFile("../../docs/man/corralctl.1.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(page), "\n# KEYS OF TOP\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n# ")
	for _, key := range top.Keys() {
		assert.Contains(t, strings.ReplaceAll(section, "\\", ""), "**"+key+"**")
	}
}

const repeater = `sh -c 'printf "\033[1;35mThe repeater\033[0m\n"; while read -r line; do echo "heard $line"; done'`

func TestTop_ShowsLiveSessionsAndObeysKeys(t *testing.T) {
	stage := newStoryRun(t)
	stage.run(t, "corralctl run --id alpha -- "+repeater, "")
	v := newTopTerminal(t, stage, "80", "24", "corralctl top")
	v.waitFor("1 session", "alpha", "running", "── alpha ──", "The repeater")
	assert.Regexp(t, `\x1b\[35m(\x1b\[[0-9;]*m)*The repeater`, v.tmux("capture-pane", "-ep"), "in its own colours")

	stage.run(t, `corralctl run --wait --id beta -- sh -c 'printf "\033[99;1Hlast words\n"; exit 3' || true`, "")
	v.waitFor("2 sessions", "beta", "failed")
	v.waitAbove("beta", "alpha") // it needs attention
	v.keys("k")
	v.waitFor("failed: command exited with code 3", "last words")
	v.keys("c")
	v.waitFor("Marked as seen: beta.")
	v.waitAbove("alpha", "beta")
	v.keys("/")
	v.keys("alpha", "Enter")
	v.waitGone("beta")

	v.keys("s")
	v.waitFor("Send to alpha")
	v.keys("-l", "good morning")
	v.keys("Enter")
	v.waitFor("heard good morning")

	v.keys("Enter")
	v.waitGone("ACTIVITY")
	v.waitFor("heard good morning")
	v.keys("-l", "from within")
	v.keys("Enter")
	v.waitFor("heard from within")
	v.keys("C-b", "d")
	v.waitFor("ACTIVITY", "── alpha ──", "heard from within")

	for _, size := range [][]string{{"150", "40", "ID AGENT STATE ACTIVITY CPU SINCE WORKSPACE"},
		{"40", "10", "ID STATE ACTIVITY"}, {"80", "24", "ID AGENT STATE ACTIVITY CPU SINCE"}} {
		v.resize(size[0], size[1], size[2])
	}
	v.waitFor("heard from within")
	v.keys("f")
	v.waitFor("frozen")
	v.keys("f")
	v.waitGone("frozen")
	v.keys("S")
	v.waitFor("Stop alpha?", "lost")
	v.keys("y")
	v.waitFor("stopped", "heard from within")
	v.keys("z")
	v.waitFor(`cannot suspend "alpha"`)
	v.keys("d")
	v.waitFor("Remove alpha?", "~/src/shop is not touched")
	v.keys("y")
	v.waitFor("Removed alpha.", "1 session ")
	v.keys("Escape")
	v.waitFor("beta")
	v.keys("q")
	v.waitFor("top ended with 0")
}

// TestTop_AttachesBesideOtherClients: attaching acknowledges the session's request even if another
// client is attached. If the session ends meanwhile, that is not an error of attach.
func TestTop_AttachesBesideOtherClients(t *testing.T) {
	stage := newStoryRun(t)
	stage.run(t,
		`corralctl run --id asker -- sh -c 'echo ready; while read -r line; do corralctl report waiting --reason question --message "$line"; done'`, "")
	newTopTerminal(t, stage, "80", "24", "corralctl attach asker").waitFor("ready")
	stage.run(t,
		`corralctl send asker "which one?" && until corralctl show -P Attention asker | grep -q question; do :; done`, "")
	v := newTopTerminal(t, stage, "100", "30", "corralctl top")
	v.waitFor("which one?")
	v.keys("Enter")
	v.waitGone("ACTIVITY")
	stage.run(t, `until corralctl show -P AttentionAcknowledged asker | grep -q yes; do :; done; corralctl stop asker`, "")
	v.waitFor("asker: sh was stopped on request", "Choice:")
	v.keys("q")
	assert.NotContains(t, v.waitFor("ACTIVITY", "stopped"), "cannot attach")
	v.keys("q")
	v.waitFor("top ended with 0")
}

// asker is a program that asks for a permission through a hook, and prints each byte that it reads.
const asker = `#!/bin/sh
stty -icanon -echo
echo "May $1 go on?"
corralctl report waiting --reason permission --message "May $1 go on?"
while :; do
	key=$(dd bs=1 count=1 2>/dev/null | od -An -tx1)
	echo "[${key# }]"
	corralctl report working
done
`

// newAskers starts sessions of an agent that waits for a permission and whose definition has the
// keys that answer it.
func newAskers(t *testing.T, ids ...string) *storyRun {
	stage := newStoryRun(t)
	program := filepath.Join(stage.home, "asker")
	require.NoError(t, os.WriteFile(program, []byte(asker), 0o700))
	definition := filepath.Join(stage.home, "config/corral/agents/asker.agent")
	require.NoError(t, os.MkdirAll(filepath.Dir(definition), 0o700))
	require.NoError(t,
		os.WriteFile(definition, []byte("[Agent]\nCommand="+program+"\nApproveKeys=1\nDenyKeys=2\n"), 0o600))
	for _, id := range ids {
		stage.run(t, "corralctl reload; corralctl run -q --id "+id+" asker -- "+id, "")
		stage.run(t, "until corralctl show -P AttentionMessage "+id+" | grep -q 'go on'; do :; done", "")
	}
	return stage
}

// TestTop_AnswersThreeAgentsWithSixKeys: at most six keys answer three waiting agents, at every
// size of the terminal, and each agent gets only its own answer.
func TestTop_AnswersThreeAgentsWithSixKeys(t *testing.T) {
	for _, size := range [][2]string{{"80", "24"}, {"100", "30"}, {"30", "8"}} {
		t.Run(size[0]+"x"+size[1], func(t *testing.T) {
			stage := newAskers(t, "ask1", "ask2", "ask3")
			v := newTopTerminal(t, stage, size[0], size[1], "corralctl top")
			keys := 0
			press := func(key, selected string) {
				t.Helper()
				v.keys(key)
				keys++
				v.waitSelected(selected)
			}
			v.waitSelected("ask1")
			press("Y", "ask2") // ask1 moves down, and the next one is selected
			press("Tab", "ask3")
			// the last one of the list that still waits
			press("N", "ask1")
			press("Tab", "ask2")
			v.keys("Y")
			keys++
			assert.LessOrEqual(t, keys, 6)
			for id, got := range map[string]string{"ask1": "[31]", "ask2": "[31]", "ask3": "[32]"} {
				stage.run(t, "until corralctl peek "+id+" | grep -qF '"+got+"'; do :; done", "")
				assert.Equal(t, 1, strings.Count(stage.run(t, "corralctl peek "+id, ""), "["), "%s got nothing else", id)
			}
			v.keys("q")
			v.waitFor("top ended with 0")
		})
	}
}

// TestTop_PassesKeysToOneSessionOnly: in pass-through mode, one session gets all keys in their
// order, and no other session gets any.
func TestTop_PassesKeysToOneSessionOnly(t *testing.T) {
	for _, size := range [][2]string{{"80", "24"}, {"30", "8"}} {
		t.Run(size[0]+"x"+size[1], func(t *testing.T) {
			stage := newAskers(t, "ask1", "ask2")
			v := newTopTerminal(t, stage, size[0], size[1], "corralctl top")
			v.waitSelected("ask1")
			v.keys("i")
			v.waitFor("KEYS GO TO ask1", "Ctrl-q leaves")
			v.keys("1", "d", "y", "q", "Up", "x", "Tab", "C-d", "z")
			v.waitFor("[7a]")
			v.keys("C-q")
			v.waitGone("KEYS GO TO")
			v.waitSelected("ask2")
			got := strings.Fields(stage.run(t, "corralctl logs ask1", ""))
			assert.Equal(t, "[31] [64] [79] [71] [1b] [5b] [41] [78] [09] [04] [7a]", strings.Join(got[4:], " "))
			assert.NotContains(t, stage.run(t, "corralctl peek ask2", ""), "[")

			// Home, because the selection has moved by itself and i would be ignored
			v.keys("Home", "i")
			v.waitFor("KEYS GO TO ask2")
			stage.run(t, "corralctl stop ask2", "")
			v.waitFor("KEYS GO NOWHERE")
			v.keys("d", "y", "q")
			v.keys("C-q")
			v.waitGone("KEYS GO NOWHERE")
			v.waitFor("ask1", "ask2")
			v.keys("q")
			v.waitFor("top ended with 0")
		})
	}
}

func TestTop_SurvivesDaemonRestarts(t *testing.T) {
	stage := newStoryRun(t)
	stage.run(t, "corralctl run --id alpha -- sleep infinity", "")
	v := newTopTerminal(t, stage, "100", "30", "corralctl top")
	v.waitFor("alpha", "running")

	var pid uint32
	bus := testbed.Bus(t)
	require.NoError(t, bus.BusObject().CallWithContext(t.Context(), "org.freedesktop.DBus.GetConnectionUnixProcessID", 0,
		dbusapi.BusName).Store(&pid))
	require.NoError(t, syscall.Kill(int(pid), syscall.SIGKILL))
	v.waitFor("corrald is not running. Showing the last known state", "alpha")
	v.keys("S")
	v.waitFor("corrald is not running")

	startDaemon(t, testbed.Programs(t), stage.environment)
	v.waitGone("corrald is not running")
	stage.run(t, "corralctl run --id beta -- sleep infinity", "")
	v.waitFor("alpha", "beta", "2 running")
	v.keys("C-c")
	v.waitFor("top ended with 0")
}

// TestTop_DoesNotStartAStoppedDaemon: top does not start corrald again, neither for its display nor
// for a dialog that was opened before.
func TestTop_DoesNotStartAStoppedDaemon(t *testing.T) {
	u := newInstallation(t)
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
	u.must("run", "--id", "alpha", "--", "sleep", "infinity") // this starts corrald

	v := newTopTerminal(t, &storyRun{home: u.home, environment: u.environment}, "100", "30", "corralctl top")
	v.waitFor("alpha", "running")
	v.keys("S")
	v.waitFor("Stop alpha?")
	testbed.Systemctl(t, "stop", "corrald.service")
	v.waitFor("corrald is not running. Showing the last known state")
	v.keys("y")
	v.waitFor(`cannot stop "alpha": corrald is not running`)
	state, _ := exec.Command("systemctl", "--user", "is-active", "corrald.service").Output()
	assert.Equal(t, "inactive\n", string(state))
}

// TestTop_WorksOverSSH: without access to the control groups, top asks corrald. The ssh of this
// test only runs the command.
func TestTop_WorksOverSSH(t *testing.T) {
	stage := newStoryRun(t)
	stage.run(t,
		`mkdir ~/bin && printf '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift 2; exec sh -c "$*"\n' >~/bin/ssh && chmod +x ~/bin/ssh`, "")
	stage.run(t, "corralctl run --id alpha -- "+repeater, "")
	v := newTopTerminal(t, stage, "100", "30", "PATH=~/bin:$PATH corralctl -H anna@desk top")
	v.waitFor("on anna@desk", "alpha", "The repeater", "0%", "▁")
	v.keys("a")
	v.waitGone("ACTIVITY")
	v.keys("-l", "from afar")
	v.keys("Enter")
	v.waitFor("heard from afar")
	v.keys("C-b", "d")
	v.waitFor("ACTIVITY", "heard from afar")
	v.keys("q")
	v.waitFor("top ended with 0")
}

func TestTop_RequiresACapableTerminal(t *testing.T) {
	v := newTopTerminal(t, newStoryRun(t), "100", "24", "corralctl top | cat; TERM=dumb corralctl top")
	v.waitFor("cannot show a full screen: standard input is not a terminal",
		"cannot show a full screen: the terminal does not support it (TERM=dumb)", "hint: corralctl monitor",
		"top ended with 1")
}
