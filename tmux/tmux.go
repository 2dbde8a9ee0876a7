// Package tmux runs one tmux server for each session: it starts the server, opens the agent's pane
// in it, reads its screen, and returns the command that attaches to it.
//
// A server runs in the foreground, so that it is Corral's child and is in the session's scope
// before it executes tmux. It has its own socket and configuration; the user's ~/.tmux.conf is read
// only on request.
package tmux

import (
	"bytes"
	"context"
	_ "embed" // for tmux.conf
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/atomicfile"
	"github.com/corrald/corral/internal/deadline"
)

//go:embed tmux.conf
var configuration string

// commandTimeout bounds each tmux command, so that a server that hangs does not block Corral.
const commandTimeout = 10 * time.Second

// The size of a pane while no terminal is attached: wide enough for an agent's tables, as high as a
// terminal on a common laptop.
const (
	width  = 120
	height = 40
)

// maxSocketPath is the capacity of sun_path in a socket address without the terminating NUL, in
// bytes (unix(7)).
const maxSocketPath = 107

// Tmux contains what is needed to run tmux for sessions.
type Tmux struct {
	Program string // path of the tmux program
	Config  string // path of Corral's configuration, written by Prepare
	// Env is the environment of servers and of the panes that users open in them. Agents have their
	// own.
	Env     []string
	BusAddr string // DBUS_SESSION_BUS_ADDRESS for the panes of users
}

// Session is the tmux session of one Corral session.
type Session struct {
	Socket      string // path
	Name        string // the session's ID, with _ in place of dots; tmux shows it to users
	Window      string // name of the window that Run opens, "" for tmux's default
	ServerPID   int    // process ID of the server, 0 if not known
	AgentExited bool   // the agent is known to have exited
}

// Prepare finds tmux and writes the configuration into directory dir, which must exist until the
// user logs out.
func Prepare(dir string, env []string, busAddr string) (*Tmux, error) {
	program, err := exec.LookPath("tmux")
	if err != nil {
		return nil, errors.New("tmux is not installed")
	}
	// dir also contains the sessions' directories; no session can have this name.
	config := filepath.Join(dir, ".tmux.conf")
	if err := atomicfile.Write(config+overridesSuffix, []byte(overrides), 0o600); err != nil {
		return nil, fmt.Errorf("cannot write tmux's configuration: %w", err)
	}
	t := &Tmux{Program: program, Config: config, Env: env, BusAddr: busAddr}
	return t, t.SetDetachKey("")
}

// NewSession returns the tmux session for the Corral session id. Its socket is in directory dir.
func NewSession(dir, id string) (Session, error) {
	// "." and ":" are separators in tmux targets; tmux itself would replace them in the name.
	s := Session{Socket: filepath.Join(dir, "tmux"), Name: strings.ReplaceAll(id, ".", "_")}
	if len(s.Socket) > maxSocketPath {
		return s, fmt.Errorf("the path of the tmux socket is longer than %d bytes: %q", maxSocketPath, s.Socket)
	}
	return s, nil
}

// Server is the tmux server process of a session.
type Server struct {
	PID   int // a child of this process: the caller reaps it
	PIDFD int // closed by Close
	gate  *os.File
}

// gateScript is what the server's process runs before it executes tmux: it waits until its standard
// input is closed, either by Execute or because Corral's process has exited. In the latter case it
// must not exit: systemd does not report the end of a scope whose only process exited before it was
// moved there.
const gateScript = `read -r _; exec "$0" "$@" </dev/null`

// StartServer starts the session's server without any tmux session, in the control group whose
// directory is open as cgroup. If cgroup is negative, the process starts in the caller's control
// group and waits there as a shell until Execute is called, so that it can be moved first: memory
// stays charged to the control group in which it was allocated, even if the process is moved (the
// kernel's cgroup-v2 document, "Memory Ownership"), and tmux allocates half of its memory within
// milliseconds. The memory of the shell is freed by its execve(2).
//
// The server reads the user's configuration files after Corral's. Reconfigure returns their invalid
// lines.
func (t *Tmux) StartServer(s Session, cgroup int, user ...string) (*Server, error) {
	if err := os.Remove(s.Socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("cannot start tmux: %w", err)
	}
	if err := unix.Access(t.Program, unix.X_OK); err != nil {
		return nil, fmt.Errorf("cannot start tmux: cannot execute %q: %w", t.Program, err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot start tmux: %w", err)
	}
	defer func() { _ = null.Close() }()
	// Since version 3.4, a tmux that finds the user's bus moves each new pane into a scope of its own,
	// out of the session's. Without an address it would look for the bus in XDG_RUNTIME_DIR, so it
	// gets an address that does not work.
	const address = "DBUS_SESSION_BUS_ADDRESS="
	env := slices.DeleteFunc(slices.Clone(t.Env), func(entry string) bool { return strings.HasPrefix(entry, address) })
	env = append(env, address+"disabled:")
	server, stdin, program := &Server{PIDFD: -1}, null, t.Program
	argv := append([]string{"tmux", "-u", "-D", "-S", s.Socket, "-f", t.Config}, t.userFlags(user)...)
	if cgroup < 0 {
		if stdin, server.gate, err = os.Pipe(); err != nil {
			return nil, fmt.Errorf("cannot start tmux: %w", err)
		}
		defer func() { _ = stdin.Close() }()
		argv = append([]string{"sh", "-c", gateScript, t.Program}, argv[1:]...)
		program = "/bin/sh"
	}
	server.PID, err = syscall.ForkExec(program, argv, &syscall.ProcAttr{
		Dir:   "/",
		Env:   env,
		Files: []uintptr{stdin.Fd(), null.Fd(), null.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true, PidFD: &server.PIDFD, UseCgroupFD: cgroup >= 0, CgroupFD: cgroup},
	})
	if err != nil {
		if server.gate != nil {
			_ = server.gate.Close()
		}
		return nil, fmt.Errorf("cannot start tmux: %w", err)
	}
	return server, nil
}

// Execute makes a server that was started without a control group execute tmux.
func (s *Server) Execute() {
	if s.gate != nil {
		_ = s.gate.Close()
		s.gate = nil
	}
}

// Close closes the descriptors of the server, and makes it execute tmux if it still waits.
func (s *Server) Close() {
	s.Execute()
	_ = unix.Close(s.PIDFD)
}

// IsServer reports whether a process with these arguments is a server of the session, started by
// StartServer.
func IsServer(s Session, args []string) bool {
	i := slices.Index(args, "-S")
	return i > 0 && i+1 < len(args) && args[i+1] == s.Socket && slices.Contains(args[:i], "-D")
}

// Run opens the tmux session with one pane that runs the command in directory dir. The command gets
// the variables, NAME=VALUE, in addition to those of all panes.
func (t *Tmux) Run(ctx context.Context, s Session, dir string, command []string, variables ...string) error {
	args := []string{"-N", "set-environment", "-g", "DBUS_SESSION_BUS_ADDRESS", t.BusAddr, ";"}
	args = append(args, "new-session", "-d", "-s", s.Name, "-x", strconv.Itoa(width), "-y", strconv.Itoa(height),
		"-c", escapeArgument(escapeFormat(dir)))
	if s.Window != "" {
		args = append(args, "-n", escapeArgument(escapeFormat(s.Window)))
	}
	for _, v := range variables {
		args = append(args, "-e", escapeArgument(v))
	}
	args = append(args, "--")
	for _, arg := range command {
		args = append(args, escapeArgument(arg))
	}
	for _, v := range variables { // by now the command runs; other panes do not get them
		name, _, _ := strings.Cut(v, "=")
		args = append(args, ";", "set-environment", "-u", "-t", s.pane(), name)
	}
	for option, id := range map[string]string{sessionOption: "#{session_id}", paneOption: "#{pane_id}"} {
		args = append(args, ";", "set-option", "-s", "-F", "-t", s.pane(), option, id)
	}
	_, err := t.command(ctx, s, args...)
	if err != nil {
		return fmt.Errorf("cannot open tmux session %q: %w", s.Name, err)
	}
	return nil
}

// IsResponding reports whether the server exists and answers.
func (t *Tmux) IsResponding(ctx context.Context, s Session) bool {
	_, err := t.command(ctx, s, "-N", "display-message", "-p", "ok")
	return err == nil
}

// SendKeys presses keys, given by tmux's names, in the agent's pane. If a user has left the pane in
// a mode that would receive the keys, such as the mode for scrolling, SendKeys ends that mode.
func (t *Tmux) SendKeys(ctx context.Context, s Session, keys []string) error {
	pane := t.targets(ctx, s).pane
	args := []string{"-N", "copy-mode", "-q", "-t", pane, ";", "send-keys", "-t", pane, "--"}
	for _, key := range keys {
		args = append(args, escapeArgument(key))
	}
	if _, err := t.command(ctx, s, args...); err != nil {
		return fmt.Errorf("cannot send keys to %q: %w", s.Name, err)
	}
	// The server replies before it has written the keys to the pane, but writes them before it handles
	// the next client.
	if _, err := t.command(ctx, s, "-N", "display-message", "-p", "-t", pane, ""); err != nil {
		return fmt.Errorf("cannot check whether %q received the keys: %w", s.Name, err)
	}
	return nil
}

// IsAttached reports whether a terminal is attached to the session. It does not call tmux: the
// server sets the execute permission of its socket while a terminal is attached (server.c,
// server_update_socket). inotify reports the change as IN_ATTRIB.
func (s Session) IsAttached() bool {
	info, err := os.Lstat(s.Socket)
	return err == nil && info.Mode()&0o100 != 0
}

// HasFocus reports whether a user is looking at the session: a terminal is attached that has the
// focus or does not report focus.
func (t *Tmux) HasFocus(ctx context.Context, s Session) bool {
	out, err := t.command(ctx, s, "-N", "list-clients", "-F", "#{client_flags}")
	return err == nil && hasFocused(string(out))
}

// hasFocused reports whether a list of the flags of tmux clients contains one with the focus.
func hasFocused(clients string) bool {
	for flags := range strings.FieldsSeq(clients) {
		if slices.Contains(strings.Split(flags, ","), "focused") {
			return true
		}
	}
	return false
}

// messageDuration is how long a message is shown unless a key is pressed. During that time, tmux
// does not draw the agent's output.
const messageDuration = 3 * time.Second

// Message shows a text in the status line of every terminal that is attached to the session. The
// text may come from an untrusted source: it is shown unchanged, except for a space between "#" and
// "[", which tmux would otherwise interpret as a style.
func (t *Tmux) Message(ctx context.Context, s Session, text string) error {
	out, err := t.command(ctx, s, "-N", "list-clients", "-F", "#{client_name}")
	if err != nil {
		return fmt.Errorf("cannot list the terminals of %q: %w", s.Name, err)
	}
	clients := strings.Fields(string(out))
	if len(clients) == 0 {
		return nil
	}
	// tmux expands a message as a format and with strftime(3). It does not expand the value of an
	// option again, and does not run commands in it.
	const option = "@corral-message"
	args := []string{"-N", "set-option", "-s", option, escapeArgument(strings.ReplaceAll(text, "#[", "# ["))}
	duration := strconv.FormatInt(messageDuration.Milliseconds(), 10)
	for _, client := range clients {
		args = append(args, ";", "display-message", "-c", client, "-d", duration, "#{"+option+"}")
	}
	if _, err := t.command(ctx, s, append(args, ";", "set-option", "-su", option)...); err != nil {
		return fmt.Errorf("cannot show a message in the terminals of %q: %w", s.Name, err)
	}
	return nil
}

// AttachCommand returns the command line that attaches a terminal to the session. It states that
// the terminal supports UTF-8, as all of Corral's output assumes. By default tmux uses the locale,
// which many terminals with UTF-8 do not set, such as a window opened by the user manager, and
// shows "_" for every non-ASCII character. The command line contains the session's name as long as
// the session has that name, since a shell would expand an ID such as "$0" if a caller passes the
// arguments to it unquoted.
func (t *Tmux) AttachCommand(ctx context.Context, s Session) []string {
	p := t.targets(ctx, s)
	if p.sessionName == s.Name {
		p.session = "=" + s.Name
	}
	return []string{t.client(s), "-u", "-N", "-S", s.Socket, "attach-session", "-t", p.session}
}

// escapeFormat escapes a text in an argument that tmux expands as a format, so that it stays
// unchanged. A format can run commands.
func escapeFormat(text string) string { return strings.ReplaceAll(text, "#", "##") }

// escapeArgument escapes an argument, so that tmux uses it unchanged: a semicolon at its end would
// end the tmux command.
func escapeArgument(arg string) string {
	if before, ok := strings.CutSuffix(arg, ";"); ok {
		return before + `\;`
	}
	return arg
}

// The server options that contain the IDs of the session and of the agent's pane.
const (
	sessionOption = "@corral-session"
	paneOption    = "@corral-pane"
)

// targets are the tmux targets of a session and its pane, which users may have renamed or moved.
type targets struct {
	session, pane string
	sessionName   string // current name of the session, "" if not known
}

// targets returns IDs as targets: these do not change when a user renames the session, or splits,
// swaps or moves the pane. If the server does not have them, as one that an older version of Corral
// started, it returns targets by name.
func (t *Tmux) targets(ctx context.Context, s Session) targets {
	const name = "#{S:#{?#{==:#{session_id},#{" + sessionOption + "}},#{session_name},}}"
	out, err := t.command(ctx, s, "-N", "display-message", "-p", "#{"+sessionOption+"} #{"+paneOption+"} "+name)
	ids := strings.SplitN(strings.TrimSuffix(string(out), "\n"), " ", 3)
	if err == nil && len(ids) == 3 && ids[0] != "" {
		return targets{ids[0], ids[1], ids[2]}
	}
	return targets{session: "=" + s.Name, pane: s.pane()}
}

// pane returns the target of the agent's pane as long as no user has moved it: the first pane of
// the first window.
func (s Session) pane() string { return "=" + s.Name + ":^.{top-left}" }

// client returns the tmux program that can communicate with the server. After an upgrade of the
// package, a new client may not understand an old server, but the server's own deleted program can
// still be executed.
func (t *Tmux) client(s Session) string {
	if s.ServerPID != 0 {
		exe := "/proc/" + strconv.Itoa(s.ServerPID) + "/exe"
		if target, err := os.Readlink(exe); err == nil && strings.HasSuffix(target, " (deleted)") {
			return exe
		}
	}
	return t.Program
}

// clientSlots limits the number of concurrent tmux clients: each one needs a process and a thread
// of this process, and a Go process that cannot create a thread exits. TasksMax= in corrald.service
// allows more than this number.
var clientSlots = make(chan struct{}, 256)

// command runs a tmux command and returns its standard output. The text of the error is tmux's
// standard error.
func (t *Tmux) command(ctx context.Context, s Session, args ...string) ([]byte, error) {
	out, errs, err := t.commandWithInput(ctx, s, "", args...)
	if text := strings.TrimSpace(errs); err != nil && text != "" {
		return nil, errors.New(text)
	}
	return out, err
}

// commandWithInput runs a tmux command with input and returns its standard output and standard
// error.
func (t *Tmux) commandWithInput(
	ctx context.Context, s Session, input string, args ...string,
) (out []byte, errs string, err error) {
	ctx, cancel := deadline.Context(ctx, commandTimeout)
	defer cancel()
	select {
	case clientSlots <- struct{}{}:
		defer func() { <-clientSlots }()
	case <-ctx.Done():
		// All slots are taken by servers that do not answer either.
		return nil, "", fmt.Errorf("tmux does not answer: %w", ctx.Err())
	}
	cmd := exec.CommandContext(ctx, t.client(s), append([]string{"-u", "-S", s.Socket}, args...)...)
	cmd.Env = t.Env
	cmd.Dir = "/"
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if input != "" {
		cmd.Stdin = strings.NewReader(input)
	}
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("tmux does not answer: %w", ctx.Err())
	}
	return stdout.Bytes(), stderr.String(), err
}

// Reap reaps a server that has exited, if it is a child of this process. It never waits.
func Reap(pid int) {
	if pid > 0 { // 0 and less stand for any child
		_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
	}
}
