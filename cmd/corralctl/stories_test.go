package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/testbed"
)

// TestStories runs scripts of commands and compares what they print. In a story, a line that begins
// with "$ " is a command for sh; lines that begin with "> " continue it. Its expected output
// follows, stdout and stderr together, and "[exit N]" if it does not exit with 0. "…" in a line
// stands for any text, a line "..." for any lines, and a line that begins with "#" is a comment.
// Each story has a daemon, a home and a state of its own, and starts in the directory src/shop of
// its home.
func TestStories(t *testing.T) {
	stories, err := filepath.Glob("testdata/*.story")
	require.NoError(t, err)
	require.NotEmpty(t, stories)
	answered := monitorErrors(t)
	played := 0
	for _, path := range stories {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".story"), func(t *testing.T) {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			story := newStoryRun(t)
			for _, step := range parseStory(string(text)) {
				story.runStep(t, path, step)
			}
			played++
		})
	}
	if played < len(stories) { // -run selected only some
		return
	}
	missing := contractErrors(t)
	for len(missing) > 0 {
		answer := testbed.Receive(t, answered, fmt.Sprintf("answer of corrald, in a story, with any of %q", missing))
		name, _ := answer.Headers[dbus.FieldErrorName].Value().(string)
		missing = slices.DeleteFunc(missing, func(short string) bool { return dbusapi.ErrorName(short) == name })
	}
}

// monitorErrors returns the errors that corrald sends from now on, to whatever client.
func monitorErrors(t *testing.T) <-chan *dbus.Message {
	bus := testbed.Bus(t)
	rules := []string{"type='error',sender='" + dbusapi.BusName + "'"}
	call := bus.BusObject().Call("org.freedesktop.DBus.Monitoring.BecomeMonitor", 0, rules, uint32(0))
	require.NoError(t, call.Err)
	answers := make(chan *dbus.Message, 1<<16)
	bus.Eavesdrop(answers)
	return answers
}

// contractErrors returns the short names of the errors in the interface definition.
func contractErrors(t *testing.T) []string {
	list := regexp.MustCompile(`(?s)Error\.\*: (.*?); beside them the standard (.*?) of org`)
	names := list.FindStringSubmatch(dbusapi.ManagerXML)
	require.NotNil(t, names)
	return strings.Fields(names[1] + " " + names[2])
}

// docs/TOUR.md is run as a story: its commands print what it shows.
func TestTour_MatchesItsCommands(t *testing.T) {
	const path = "../../docs/TOUR.md"
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	story := newStoryRun(t)
	steps := parseStory(fenced(string(text)))
	require.NotEmpty(t, steps)
	for _, step := range steps {
		story.runStep(t, path, step)
	}
}

// fenced returns the fenced blocks of a document as a story. All other lines become comments, so
// that lines keep their numbers.
func fenced(text string) string {
	lines := strings.Split(text, "\n")
	inside := false
	for i, line := range lines {
		fence := strings.HasPrefix(line, "```")
		inside = inside != fence
		if fence || !inside {
			lines[i] = "#"
		}
	}
	return strings.Join(lines, "\n")
}

// storyStep is one command of a story, and what it is expected to print.
type storyStep struct {
	line    int
	command string
	want    []string // expected output
	code    int
}

var exitLine = regexp.MustCompile(`^\[exit ([0-9]+)\]$`)

func parseStory(text string) []storyStep {
	var steps []storyStep
	for i, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		last := len(steps) - 1
		command, isCommand := strings.CutPrefix(line, "$ ")
		more, isMore := strings.CutPrefix(line, "> ")
		switch code := exitLine.FindStringSubmatch(line); {
		case isCommand:
			steps = append(steps, storyStep{line: i + 1, command: command})
		case last < 0 || strings.HasPrefix(line, "#"):
		case isMore && len(steps[last].want) == 0:
			steps[last].command += "\n" + more
		case code != nil:
			steps[last].code, _ = strconv.Atoi(code[1])
		default:
			steps[last].want = append(steps[last].want, line)
		}
	}
	for i := range steps {
		want := &steps[i].want
		for len(*want) > 0 && (*want)[len(*want)-1] == "" {
			*want = (*want)[:len(*want)-1]
		}
	}
	return steps
}

// storyRun is the home directory and the environment in which a story runs.
type storyRun struct {
	home        string
	environment []string
}

func newStoryRun(t *testing.T) *storyRun {
	programs := testbed.Programs(t)
	home := testbed.Dir(t)
	require.NoError(t, os.MkdirAll(filepath.Join(home, "src/shop"), 0o700))
	s := &storyRun{home: home}
	s.environment = append(os.Environ(),
		"PATH="+filepath.Dir(programs.Corralctl)+":/usr/local/bin:/usr/bin:/bin", "HOME="+home,
		"XDG_STATE_HOME="+home+"/state", "XDG_CONFIG_HOME="+home+"/config", "XDG_DATA_HOME="+home+"/.local/share",
		"LANG=C.UTF-8", "TZ=UTC")
	startDaemon(t, programs, s.environment)
	return s
}

// startDaemon starts corrald and waits until it is on the bus. At the end of the test it stops the
// daemon, and the sessions that the daemon leaves running.
func startDaemon(t *testing.T, programs testbed.Binaries, environment []string) {
	t.Helper()
	bus := testbed.Bus(t)
	owners := make(chan *dbus.Signal, 16)
	bus.Signal(owners)
	require.NoError(t, bus.AddMatchSignal(dbus.WithMatchMember("NameOwnerChanged"), dbus.WithMatchArg(0, dbusapi.BusName)))
	var journal bytes.Buffer
	daemon := exec.Command(programs.Corrald)
	daemon.Env = environment
	daemon.Stdout, daemon.Stderr = &journal, &journal
	require.NoError(t, daemon.Start())
	t.Cleanup(func() {
		_ = exec.Command("systemctl", "--user", "stop", "app-corral-*.scope").Run()
		_ = daemon.Process.Signal(syscall.SIGTERM) // a story may have stopped it
		err := daemon.Wait()
		if t.Failed() || err != nil {
			t.Logf("corrald: %v\n%s", err, journal.String())
		}
	})
	for {
		signal := testbed.Receive(t, owners, "corrald on the bus")
		var name, before, after string
		if dbus.Store(signal.Body, &name, &before, &after) == nil && name == dbusapi.BusName && after != "" {
			return
		}
	}
}

func (s *storyRun) runStep(t *testing.T, path string, step storyStep) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testbed.Timeout)
	defer cancel()
	command := exec.CommandContext(ctx, "sh", "-c", step.command)
	// A command that hangs is killed with all that it started, and its output so far is shown.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.Dir = filepath.Join(s.home, "src/shop")
	command.Env = append(s.environment, "PWD="+command.Dir)
	output, err := command.CombinedOutput()
	code := 0
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if ctx.Err() != nil {
		code = -1
	} else {
		require.NoError(t, err)
	}
	got := strings.ReplaceAll(strings.TrimRight(string(output), "\n"), s.home, "~")
	want := strings.Join(step.want, "\n")
	if !matches(want, got) || code != step.code {
		t.Errorf("%s:%d: $ %s\n--- expected, exit %d\n%s\n--- got, exit %d\n%s",
			path, step.line, step.command, step.code, want, code, got)
	}
}

// matches reports whether an output is as a story expects it.
func matches(want, got string) bool {
	pattern := regexp.QuoteMeta(want)
	pattern = strings.ReplaceAll(pattern, "…", "[^\n]*")
	lines := strings.Split(pattern, "\n")
	for i, line := range lines {
		if line == `\.\.\.` {
			lines[i] = "(?:.*\n)*?.*"
		}
	}
	return regexp.MustCompile(`^` + strings.Join(lines, "\n") + `$`).MatchString(got)
}

func TestParseStory_SplitsCommandsAndOutput(t *testing.T) {
	steps := parseStory("# a title\n\n$ one\n> two\nout …\n\n[exit 3]\n\n# more\n$ three\n")
	require.Equal(t, []storyStep{{3, "one\ntwo", []string{"out …"}, 3}, {10, "three", nil, 0}}, steps)
	require.True(t, matches("a…c\n...\nz", "abc\nd\ne\nz"))
	require.True(t, matches("a (…)", "a (b)"))
	require.False(t, matches("a…c", "abd"))
	require.False(t, matches("a", "a\nb"))
}
