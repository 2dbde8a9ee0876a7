package tmux

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/testbed"
)

const bus = "unix:path=/nowhere/bus"

// prepare returns a Tmux that is set up as in the daemon.
func prepare(t *testing.T) *Tmux {
	t.Helper()
	x, err := Prepare(testbed.Dir(t), append(os.Environ(), "TERM=tmux-256color"), bus)
	require.NoError(t, err)
	return x
}

// serve starts a server for the duration of the test.
func serve(t *testing.T, x *Tmux, user ...string) Session {
	t.Helper()
	s, err := NewSession(testbed.Dir(t), "shop.1")
	require.NoError(t, err)
	server, err := x.StartServer(s, -1, user...)
	require.NoError(t, err)
	s.ServerPID = server.PID
	t.Cleanup(func() {
		_ = unix.PidfdSendSignal(server.PIDFD, unix.SIGKILL, nil, 0)
		testbed.WaitExit(t, s.ServerPID)
		Reap(s.ServerPID)
		server.Close()
	})
	server.Execute()
	testbed.Poll(t, "tmux listens", func() bool {
		conn, err := net.Dial("unix", s.Socket)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return s
}

// open starts a server with a session that runs a shell script.
func open(t *testing.T, x *Tmux, script string) Session {
	t.Helper()
	s := serve(t, x)
	require.NoError(t, x.Run(t.Context(), s, "/", []string{"sh", "-c", script}))
	return s
}

// ask runs a tmux command and returns its output.
func ask(t *testing.T, x *Tmux, s Session, args ...string) string {
	t.Helper()
	out, err := x.command(t.Context(), s, append([]string{"-N"}, args...)...)
	require.NoError(t, err, "%q", args)
	return strings.TrimSpace(string(out))
}

// shows waits until the screen contains the text, and returns the screen.
func shows(t *testing.T, x *Tmux, s Session, text string) string {
	t.Helper()
	var screen string
	testbed.Poll(t, fmt.Sprintf("the screen shows %q", text), func() bool {
		var err error
		screen, err = x.Capture(t.Context(), s, 0, false)
		require.NoError(t, err)
		return strings.Contains(screen, text)
	})
	return screen
}

func TestStartServer_IsChildWithOneSession(t *testing.T) {
	x := prepare(t)
	s := serve(t, x)
	assert.Equal(t, strconv.Itoa(s.ServerPID), ask(t, x, s, "display-message", "-p", "#{pid}"))
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.ServerPID))
	require.NoError(t, err)
	assert.Equal(t, strconv.Itoa(os.Getpid()), strings.Fields(string(stat[bytes.LastIndexByte(stat, ')'):]))[2],
		"it runs in the foreground, as our child")
	require.NoError(t, x.Run(t.Context(), s, "/", []string{"sleep", "infinity"}))
	assert.Equal(t, "shop_1", ask(t, x, s, "list-sessions", "-F", "#{session_name}"), "tmux reserves the dot")
	assert.Equal(t, "120", ask(t, x, s, "display-message", "-p", "-t", s.pane(), "#{pane_width}"))
	info, err := os.Stat(s.Socket)
	require.NoError(t, err)
	assert.Zero(t, info.Mode().Perm()&0o077, "other users cannot connect to it")
}

func TestStartServer_KeepsRunningWithoutItsSession(t *testing.T) {
	x := prepare(t)
	s := open(t, x, "echo the last screen; read -r enter")
	shows(t, x, s, "the last screen")
	require.NoError(t, x.SendKeys(t.Context(), s, []string{"Enter"}))
	testbed.Poll(t, "it has ended",
		func() bool { return ask(t, x, s, "display-message", "-p", "-t", s.pane(), "#{pane_dead}") == "1" })
	shows(t, x, s, "the last screen\n") // still there after the program has exited
	ask(t, x, s, "kill-session", "-t", "="+s.Name)
	assert.True(t, x.IsResponding(t.Context(), s), "a closed session is distinguished from a dead server")
}

func TestIsResponding(t *testing.T) {
	x := prepare(t)
	s := serve(t, x)
	assert.True(t, x.IsResponding(t.Context(), s), "also before there is a session")
	require.NoError(t, unix.Kill(s.ServerPID, unix.SIGKILL))
	testbed.WaitExit(t, s.ServerPID)
	assert.False(t, x.IsResponding(t.Context(), s))
	assert.FileExists(t, s.Socket, "the dead server has left its socket")
	again, err := x.StartServer(s, -1)
	require.NoError(t, err, "the old socket is replaced")
	defer again.Close()
	again.Execute()
	testbed.Poll(t, "it answers", func() bool { return x.IsResponding(t.Context(), s) })
	require.NoError(t, unix.Kill(again.PID, unix.SIGKILL))
	testbed.WaitExit(t, again.PID)
	Reap(again.PID)
}

// TestStartServer_WaitsUntilExecute: the process that can be moved into a scope does not run tmux
// yet, and keeps its process ID when it executes tmux.
func TestStartServer_WaitsUntilExecute(t *testing.T) {
	x := prepare(t)
	s, err := NewSession(testbed.Dir(t), "shop")
	require.NoError(t, err)
	server, err := x.StartServer(s, -1)
	require.NoError(t, err)
	exe := func() string {
		path, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", server.PID))
		require.NoError(t, err)
		return filepath.Base(path)
	}
	stdin, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/0", server.PID))
	require.NoError(t, err)
	assert.Contains(t, stdin, "pipe:", "what it waits for")
	assert.NotEqual(t, "tmux", exe())
	assert.NoFileExists(t, s.Socket)
	server.Execute()
	testbed.Poll(t, "it answers", func() bool { return x.IsResponding(t.Context(), s) })
	assert.Equal(t, "tmux", exe())
	args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", server.PID))
	require.NoError(t, err)
	assert.True(t, IsServer(s, strings.Split(string(args), "\x00")))
	stdin, err = os.Readlink(fmt.Sprintf("/proc/%d/fd/0", server.PID))
	require.NoError(t, err)
	assert.Equal(t, os.DevNull, stdin)
	require.NoError(t, unix.PidfdSendSignal(server.PIDFD, unix.SIGKILL, nil, 0))
	testbed.WaitExit(t, server.PID)
	Reap(server.PID)
	server.Close()
}

func TestStartServer_FailsWithoutTmux(t *testing.T) {
	x := prepare(t)
	x.Program = "/nowhere/tmux"
	s, err := NewSession(testbed.Dir(t), "shop")
	require.NoError(t, err)
	for _, cgroup := range []int{-1, 0} {
		_, err = x.StartServer(s, cgroup)
		require.ErrorContains(t, err, `cannot execute "/nowhere/tmux": no such file`)
	}
}

// TestCommand_WaitsForFreeClientSlot: a command waits for a free slot until its context ends.
func TestCommand_WaitsForFreeClientSlot(t *testing.T) {
	x := prepare(t)
	s := serve(t, x)
	for range cap(clientSlots) {
		clientSlots <- struct{}{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.False(t, x.IsResponding(ctx, s))
	answers := make(chan bool)
	go func() { answers <- x.IsResponding(t.Context(), s) }()
	<-clientSlots
	assert.True(t, testbed.Receive(t, answers, "answer"))
	assert.Len(t, clientSlots, cap(clientSlots)-1)
	for range cap(clientSlots) - 1 {
		<-clientSlots
	}
}

func TestCapture_FailsWhenServerHangs(t *testing.T) {
	x := prepare(t)
	s := open(t, x, "exec sleep infinity")
	require.NoError(t, unix.Kill(s.ServerPID, unix.SIGSTOP))
	defer func() { _ = unix.Kill(s.ServerPID, unix.SIGCONT) }()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := x.Capture(ctx, s, 10, false)
	require.ErrorContains(t, err, "tmux does not answer")
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestCapture(t *testing.T) {
	x := prepare(t)
	s := open(t, x, `i=1; while [ $i -le 100 ]; do echo "line $i"; i=$((i+1)); done; printf '\033[1;31mred\033[0m 你好\n'; exec sleep infinity`)
	screen := shows(t, x, s, "你好")
	assert.NotContains(t, screen, "line 60\n", "it is in the history")
	assert.Contains(t, screen, "line 80\n")
	assert.True(t, strings.HasSuffix(screen, "\nred 你好\n"), "no empty lines after it")

	last, err := x.Capture(t.Context(), s, 3, false)
	require.NoError(t, err)
	assert.Equal(t, "line 99\nline 100\nred 你好\n", last)
	all, err := x.Capture(t.Context(), s, 10000, false)
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(all, "line 1\nline 2\n"))
	colours, err := x.Capture(t.Context(), s, 1, true)
	require.NoError(t, err)
	assert.Contains(t, colours, "\x1b[1m\x1b[31mred")

	t.Run("an empty screen", func(t *testing.T) {
		s := open(t, x, "exec sleep infinity")
		for _, lines := range []int{0, 10} {
			text, err := x.Capture(t.Context(), s, lines, false)
			require.NoError(t, err)
			assert.Empty(t, text)
		}
	})
	t.Run("the server is gone", func(t *testing.T) {
		_, err := x.Capture(t.Context(), Session{Socket: filepath.Join(testbed.Dir(t), "tmux"), Name: "shop"}, 0, false)
		assert.ErrorContains(t, err, `cannot read the screen of "shop"`)
	})
}

func TestSendKeys(t *testing.T) {
	x := prepare(t)
	s := open(t, x, "stty -echo; echo ready; while read -r line; do echo \"[$line]\"; done")
	shows(t, x, s, "ready")
	for _, row := range []struct {
		keys []string
		want string
	}{
		{[]string{"hello", "Space", "world", "Enter"}, "[hello world]"},
		{[]string{"-x", "Enter"}, "[-x]"},
		{[]string{"a", ";", "b;", "Enter"}, "[a;b;]"},
		{[]string{`a\;`, "Enter"}, `[a\;]`},
		{[]string{"#{pid}#(id)$HOME`id`", "Enter"}, "[#{pid}#(id)$HOME`id`]"},
	} {
		require.NoError(t, x.SendKeys(t.Context(), s, row.keys))
		shows(t, x, s, row.want)
	}
	err := x.SendKeys(t.Context(), Session{Socket: filepath.Join(testbed.Dir(t), "tmux"), Name: "shop"}, []string{"x"})
	assert.ErrorContains(t, err, `cannot send keys to "shop"`)
}

func TestRun_PassesArgumentsAndDirectoryUnchanged(t *testing.T) {
	x := prepare(t)
	s := serve(t, x)
	dir := testbed.Dir(t)
	work := filepath.Join(dir, "#(touch pwned) #{pid} $HOME 'a' ;")
	require.NoError(t, os.Mkdir(work, 0o700))
	out := filepath.Join(dir, "out")
	argv := []string{"sh", "-c", `{ pwd; printf '<%s>' "$@"; } > "$0.new"; mv "$0.new" "$0"; exec sleep infinity`, out, "",
		"a b", "$HOME", `"'`, "x;", ";", "line\nline", "#{pid}", "-d"}
	require.NoError(t, x.Run(t.Context(), s, work, argv))
	assert.Equal(t, work+"\n<><a b><$HOME><\"'><x;><;><line\nline><#{pid}><-d>", string(testbed.WaitFile(t, out, nil)))
	assert.NoFileExists(t, filepath.Join(dir, "pwned"))
	assert.NoFileExists(t, filepath.Join(work, "pwned"))
}

// TestRun_GivesVariablesToItsCommandOnly: a shell that a person opens in a further window does not
// get them.
func TestRun_GivesVariablesToItsCommandOnly(t *testing.T) {
	x := prepare(t)
	s := serve(t, x)
	dir := testbed.Dir(t)
	printed := func(name string) []string {
		const script = `echo "$ONE|$TWO" >"$0.new"; mv "$0.new" "$0"; exec sleep infinity`
		return []string{"sh", "-c", script, filepath.Join(dir, name)}
	}
	require.NoError(t, x.Run(t.Context(), s, "/", printed("first"), "ONE=1 #{pid};", "TWO=$HOME"))
	assert.Equal(t, "1 #{pid};|$HOME\n", string(testbed.WaitFile(t, filepath.Join(dir, "first"), nil)))
	window := append([]string{"-N", "new-window", "-t", "=" + s.Name + ":", "--"}, printed("second")...)
	_, err := x.command(t.Context(), s, window...)
	require.NoError(t, err)
	assert.Equal(t, "|\n", string(testbed.WaitFile(t, filepath.Join(dir, "second"), nil)))
}

func TestRun_FailsForDuplicateSession(t *testing.T) {
	x := prepare(t)
	s := open(t, x, "exec sleep infinity")
	err := x.Run(t.Context(), s, "/", []string{"sleep", "1"})
	require.ErrorContains(t, err, `cannot open tmux session "shop_1"`)
	require.ErrorContains(t, err, "duplicate session")
	_, err = Prepare(filepath.Join(testbed.Dir(t), "nowhere"), nil, bus)
	require.ErrorContains(t, err, "cannot write tmux's configuration")
}

func TestNewSession_RejectsLongSocketPath(t *testing.T) {
	dir := "/" + strings.Repeat("d", maxSocketPath-len("//tmux"))
	s, err := NewSession(dir, "shop")
	require.NoError(t, err)
	assert.Len(t, s.Socket, maxSocketPath)
	_, err = NewSession(dir+"d", "shop")
	assert.ErrorContains(t, err, "longer than 107 bytes")
}

// TestConfiguration_IsAcceptedByInstalledTmux: the installed version of tmux reports no errors in
// the configuration.
func TestConfiguration_IsAcceptedByInstalledTmux(t *testing.T) {
	x := prepare(t)
	s := open(t, x, "exec sleep infinity")
	assert.Empty(t, ask(t, x, s, "source-file", x.Config))
	for option, want := range map[string]string{
		"remain-on-exit": "on", "history-limit": "10000", "window-size": "latest", "default-terminal": "tmux-256color",
	} {
		assert.Equal(t, want, ask(t, x, s, "show-options", "-gAv", "-t", s.pane(), option), option)
	}
}

func TestStartServer_HidesBusFromServerButNotFromPanes(t *testing.T) {
	x := prepare(t)
	s := serve(t, x)
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", s.ServerPID))
	require.NoError(t, err)
	var addresses []string
	for entry := range strings.SplitSeq(string(environ), "\x00") {
		if strings.HasPrefix(entry, "DBUS_SESSION_BUS_ADDRESS=") {
			addresses = append(addresses, entry)
		}
	}
	assert.Equal(t, []string{"DBUS_SESSION_BUS_ADDRESS=disabled:"}, addresses,
		"with the bus, tmux would move every pane out of the scope")
	dir := testbed.Dir(t)
	script := func(name string) []string {
		return []string{"sh", "-c", `echo "$DBUS_SESSION_BUS_ADDRESS" > "$0.new"; mv "$0.new" "$0"; exec sleep infinity`,
			filepath.Join(dir, name)}
	}
	require.NoError(t, x.Run(t.Context(), s, "/", script("ours")))
	ask(t, x, s, append([]string{"new-window", "--"}, script("theirs")...)...)
	for _, name := range []string{"ours", "theirs"} {
		assert.Equal(t, bus+"\n", string(testbed.WaitFile(t, filepath.Join(dir, name), nil)), name)
	}
}

func TestStartServer_ReadsUserConfigurationOnlyOnRequest(t *testing.T) {
	userConfig := filepath.Join(os.Getenv("HOME"), ".tmux.conf")
	text := "set -g prefix C-a\nset -g no-such-option on\nrun-shell 'exit 1'\nset -g destroy-unattached on\n" +
		"set -g exit-unattached on\nset -s exit-empty on\nset -g history-limit 77\n"
	require.NoError(t, os.WriteFile(userConfig, []byte(text), 0o600))
	t.Cleanup(func() { _ = os.Remove(userConfig) })
	x := prepare(t)
	s := open(t, x, "exec sleep infinity")
	assert.Equal(t, "C-b", ask(t, x, s, "show-options", "-gv", "prefix"))
	s = serve(t, x, userConfig)
	assert.Equal(t, []InvalidLine{{userConfig, 2, "invalid option: no-such-option"}}, x.Reconfigure(t.Context(), s))
	require.NoError(t, x.Run(t.Context(), s, "/", []string{"sleep", "infinity"}))
	assert.Equal(t, "C-a", ask(t, x, s, "show-options", "-gv", "prefix"))
	assert.Equal(t, "77", ask(t, x, s, "display-message", "-p", "-t", s.pane(), "#{history_limit}"),
		"the file was read before the pane was created, despite invalid lines")
}

// TestAttachCommand attaches in a terminal that is a pane of another tmux server.
func TestAttachCommand(t *testing.T) {
	x := prepare(t)
	s := open(t, x, "printf '✻ what the agent shows 漢字'; exec cat")
	shows(t, x, s, "✻ what the agent shows 漢字")
	outer := serve(t, x)
	require.NoError(t, x.Run(t.Context(), outer, "/",
		append([]string{"env", "-u", "TMUX", "LC_ALL=C"}, x.AttachCommand(t.Context(), s)...)))
	// The screen must not show errors in the configuration, which tmux shows to the first client that
	// attaches.
	shows(t, x, outer, "✻ what the agent shows 漢字")
	assert.Equal(t, "1", ask(t, x, s, "display-message", "-p", "-t", s.pane(), "#{session_attached}"))
	require.NoError(t, x.SendKeys(t.Context(), outer, []string{"typed", "Enter"}))
	shows(t, x, s, "\ntyped") // echoed by the terminal and by cat
	require.NoError(t, x.SendKeys(t.Context(), outer, []string{"C-b", "d"}))
	testbed.Poll(t, "it is detached", func() bool {
		return ask(t, x, s, "display-message", "-p", "-t", s.pane(), "#{session_attached}") == "0"
	})
	assert.Equal(t, "typed", strings.TrimSpace(ask(t, x, s, "capture-pane", "-p", "-S", "1", "-t", s.pane()))[:5],
		"the program is still running")
}

// TestAgentPane_IsFoundAfterUserRearrangesSession: a user may rename the session, put panes and
// windows before the agent's, and leave the agent's pane in a mode. Corral still uses the agent's
// pane.
func TestAgentPane_IsFoundAfterUserRearrangesSession(t *testing.T) {
	x := prepare(t)
	const script = "stty -echo; printf ready; while read -r line; do echo \"[$line]\"; done"
	s := open(t, x, script)
	shows(t, x, s, "ready")
	assert.Equal(t, "="+s.Name, x.AttachCommand(t.Context(), s)[7], "a shell does not expand it")
	pane := ask(t, x, s, "display-message", "-p", "-t", s.pane(), "#{pane_id}")
	ask(t, x, s, "copy-mode", "-t", pane)
	require.NoError(t, x.SendKeys(t.Context(), s, []string{"one", "Enter"}), "scrolled back")
	shows(t, x, s, "[one]")
	ask(t, x, s, "split-window", "-d", "-b", "-t", pane, "printf theirs; exec cat")
	require.NoError(t, x.SendKeys(t.Context(), s, []string{"two", "Enter"}), "beside another pane")
	shows(t, x, s, "[two]")
	ask(t, x, s, "break-pane", "-d", "-s", pane)
	ask(t, x, s, "rename-session", "-t", "="+s.Name, "theirs")
	ask(t, x, s, "new-session", "-d", "-s", s.Name, "printf theirs; exec cat")
	require.NoError(t, x.SendKeys(t.Context(), s, []string{"three", "Enter"}), "in another session, by name and window")
	shows(t, x, s, "[three]")
	outer := serve(t, x)
	require.NoError(t, x.Run(t.Context(), outer, "/", x.AttachCommand(t.Context(), s)))
	shows(t, x, outer, "[theirs]")
	ask(t, x, s, "kill-pane", "-t", pane)
	_, err := x.Capture(t.Context(), s, 0, false)
	require.ErrorContains(t, err, "can't find pane", "another program's pane is not captured instead")

	t.Run("a server that an older Corral has started", func(t *testing.T) {
		s := open(t, x, script)
		for _, option := range []string{sessionOption, paneOption} {
			ask(t, x, s, "set-option", "-su", option)
		}
		shows(t, x, s, "ready")
		require.NoError(t, x.SendKeys(t.Context(), s, []string{"one", "Enter"}))
		shows(t, x, s, "[one]")
		assert.Equal(t, "="+s.Name, x.AttachCommand(t.Context(), s)[7])
	})
}

// TestMessage: any text is shown unchanged in every attached terminal. No part of it is interpreted
// as a command, a format, a time or a style.
func TestMessage(t *testing.T) {
	x := prepare(t)
	s := open(t, x, "exec sleep infinity")
	require.NoError(t, x.Message(t.Context(), s, "nobody is there"))
	first, second := serve(t, x), serve(t, x)
	for _, outer := range []Session{first, second} {
		require.NoError(t, x.Run(t.Context(), outer, "/", x.AttachCommand(t.Context(), s)))
	}
	testbed.Poll(t, "both are attached", func() bool {
		return ask(t, x, s, "display-message", "-p", "-t", s.pane(), "#{session_attached}") == "2"
	})
	marker := filepath.Join(testbed.Dir(t), "pwned")
	for _, row := range []struct{ text, shown string }{
		{"shop: failed, exit 3", ""},
		{"#(touch " + marker + ")", ""},
		{"#{pid} #{session_name} #S #H #", ""},
		{"%H:%M:%S %% %d %Y", ""},
		{"#[fg=red]red#[default] ##[bold]x", "# [fg=red]red# [default] "},
		{"$(touch " + marker + ") `touch " + marker + "` $HOME ~", ""},
		{`"quoted' \; \n { } ; new-window`, ""},
		{"ends it;", ""},
		{"-t -c -x", ""},
		{"#{E:@corral-message} #{T:@corral-message} #{l:x} #{?1,yes,no} #{s/a/b/:pid}", ""},
		{"ünïcödé 你好 ✓", ""},
	} {
		if row.shown == "" {
			row.shown = row.text
		}
		// The message disappears after some time or on a key, and a terminal that was just attached
		// receives some keys.
		testbed.Poll(t, fmt.Sprintf("both show %q", row.shown), func() bool {
			require.NoError(t, x.Message(t.Context(), s, row.text), row.text)
			one, err := x.Capture(t.Context(), first, 0, false)
			require.NoError(t, err)
			other, err := x.Capture(t.Context(), second, 0, false)
			require.NoError(t, err)
			return strings.Contains(one, row.shown) && strings.Contains(other, row.shown)
		})
	}
	assert.NoFileExists(t, marker)
	assert.Empty(t, ask(t, x, s, "show-options", "-sqv", "@corral-message"), "nothing of it stays")
	assert.Equal(t, "1", ask(t, x, s, "display-message", "-p", "-t", s.pane(), "#{session_windows}"))
	require.NoError(t, x.SendKeys(t.Context(), first, []string{"q"})) // any key removes it
	testbed.Poll(t, "it is gone", func() bool {
		screen, err := x.Capture(t.Context(), first, 0, false)
		return err == nil && !strings.Contains(screen, "你好")
	})
	err := x.Message(t.Context(), Session{Socket: filepath.Join(testbed.Dir(t), "tmux"), Name: "shop"}, "x")
	require.ErrorContains(t, err, `cannot list the terminals of "shop"`)
}

func TestAttachCommand_StartsNoServer(t *testing.T) {
	x := prepare(t)
	s := Session{Socket: filepath.Join(testbed.Dir(t), "tmux"), Name: "shop"}
	argv := x.AttachCommand(t.Context(), s)
	out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput()
	require.Error(t, err)
	assert.NotEmpty(t, out)
	assert.NoFileExists(t, s.Socket)
}

// TestAttachCommand_UsesProgramOfRunningServerAfterUpgrade: after the server's program was deleted,
// only that program can still communicate with the server.
func TestAttachCommand_UsesProgramOfRunningServerAfterUpgrade(t *testing.T) {
	x := prepare(t)
	program := filepath.Join(testbed.Dir(t), "tmux")
	path, err := exec.LookPath("tmux")
	require.NoError(t, err)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(program, data, 0o700))
	x.Program = program
	s := open(t, x, "exec sleep infinity")
	assert.Equal(t, program, x.AttachCommand(t.Context(), s)[0])
	require.NoError(t, os.Remove(program))
	assert.Equal(t, fmt.Sprintf("/proc/%d/exe", s.ServerPID), x.AttachCommand(t.Context(), s)[0])
	assert.True(t, x.IsResponding(t.Context(), s))
}

// FuzzFocused checks that no other flag is taken for the focus.
func FuzzFocused(f *testing.F) {
	for _, seed := range []string{"attached,focused,UTF-8\n", "attached,UTF-8\nattached,focused", "unfocused", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, clients string) {
		if !strings.Contains(clients, "focused") {
			require.False(t, hasFocused(clients))
		}
		require.True(t, hasFocused(clients+"\nattached,focused"))
		require.Equal(t, hasFocused(clients), hasFocused(clients+"\nattached,unfocused"))
	})
}
