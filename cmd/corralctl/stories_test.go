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

// A story is a script of commands with what they print. A line that begins with "$ " is a command
// for sh; lines that begin with "> " continue it. What follows is its output, stdout and stderr
// together, and "[exit N]" if it does not exit with 0. "…" in a line stands for any text, a line
// "..." for any lines, and a line that begins with "#" tells the story. Each story has a daemon, a
// home and a state of its own, and begins in its directory src/shop.
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
			stage := newStoryRun(t)
			for _, scene := range parseStory(string(text)) {
				stage.runStep(t, path, scene)
			}
			played++
		})
	}
	if played < len(stories) { // some were not asked for
		return
	}
	missing := contractErrors(t)
	for len(missing) > 0 {
		answer := testbed.Receive(t, answered, fmt.Sprintf("answer of corrald, in a story, with any of %q", missing))
		name, _ := answer.Headers[dbus.FieldErrorName].Value().(string)
		missing = slices.DeleteFunc(missing, func(short string) bool { return dbusapi.ErrorName(short) == name })
	}
}

// monitorErrors returns the errors that corrald answers with from now on, whoever is answered.
func monitorErrors(t *testing.T) <-chan *dbus.Message {
	bus := testbed.Bus(t)
	require.NoError(t, bus.BusObject().Call("org.freedesktop.DBus.Monitoring.BecomeMonitor", 0, []string{"type='error',sender='" + dbusapi.BusName + "'"}, uint32(0)).Err)
	answers := make(chan *dbus.Message, 1<<16)
	bus.Eavesdrop(answers)
	return answers
}

// contractErrors are the errors that the contract names, in short.
func contractErrors(t *testing.T) []string {
	names := regexp.MustCompile(`(?s)Error\.\*: (.*?); beside them the standard (.*?) of org`).FindStringSubmatch(dbusapi.ManagerXML)
	require.NotNil(t, names)
	return strings.Fields(names[1] + " " + names[2])
}

// TestTour_MatchesItsCommands is a story too: what docs/TOUR.md shows is what there is.
func TestTour_MatchesItsCommands(t *testing.T) {
	const path = "../../docs/TOUR.md"
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	stage := newStoryRun(t)
	scenes := parseStory(fenced(string(text)))
	require.NotEmpty(t, scenes)
	for _, scene := range scenes {
		stage.runStep(t, path, scene)
	}
}

// fenced returns the fenced blocks of a document, with all other lines as a story's comments, so
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

// storyStep is one command of a story.
type storyStep struct {
	line    int
	command string
	want    []string // lines
	code    int
}

var exitLine = regexp.MustCompile(`^\[exit ([0-9]+)\]$`)

func parseStory(text string) []storyStep {
	var scenes []storyStep
	for i, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		last := len(scenes) - 1
		command, isCommand := strings.CutPrefix(line, "$ ")
		more, isMore := strings.CutPrefix(line, "> ")
		switch code := exitLine.FindStringSubmatch(line); {
		case isCommand:
			scenes = append(scenes, storyStep{line: i + 1, command: command})
		case last < 0 || strings.HasPrefix(line, "#"):
		case isMore && len(scenes[last].want) == 0:
			scenes[last].command += "\n" + more
		case code != nil:
			scenes[last].code, _ = strconv.Atoi(code[1])
		default:
			scenes[last].want = append(scenes[last].want, line)
		}
	}
	for i := range scenes {
		want := &scenes[i].want
		for len(*want) > 0 && (*want)[len(*want)-1] == "" {
			*want = (*want)[:len(*want)-1]
		}
	}
	return scenes
}

// storyRun is where a story plays.
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
		"PATH="+filepath.Dir(programs.Corralctl)+":/usr/local/bin:/usr/bin:/bin", "HOME="+home, "XDG_STATE_HOME="+home+"/state", "XDG_CONFIG_HOME="+home+"/config",
		"XDG_DATA_HOME="+home+"/.local/share",
		"LANG=C.UTF-8", "TZ=UTC")
	startDaemon(t, programs, s.environment)
	return s
}

// startDaemon starts corrald and waits until it is on the bus. At the end of the test it is stopped, and what it left running with it.
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
		_ = daemon.Process.Signal(syscall.SIGTERM) // a story may have ended it
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

func (s *storyRun) runStep(t *testing.T, path string, scene storyStep) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testbed.Timeout)
	defer cancel()
	command := exec.CommandContext(ctx, "sh", "-c", scene.command)
	// A command that waits for what never comes is ended, with all that it started, and what it has said is shown.
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
	want := strings.Join(scene.want, "\n")
	if !matches(want, got) || code != scene.code {
		t.Errorf("%s:%d: $ %s\n--- expected, exit %d\n%s\n--- got, exit %d\n%s", path, scene.line, scene.command, scene.code, want, code, got)
	}
}

// matches tells whether an output is as a story has it.
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
	scenes := parseStory("# a title\n\n$ one\n> two\nout …\n\n[exit 3]\n\n# more\n$ three\n")
	require.Equal(t, []storyStep{{3, "one\ntwo", []string{"out …"}, 3}, {10, "three", nil, 0}}, scenes)
	require.True(t, matches("a…c\n...\nz", "abc\nd\ne\nz"))
	require.True(t, matches("a (…)", "a (b)"))
	require.False(t, matches("a…c", "abd"))
	require.False(t, matches("a", "a\nb"))
}
