// Package tmux runs one tmux server for each session: it starts it, puts the agent's pane into it,
// reads its screen, and tells how to attach.
//
// A server runs in the foreground, so that it is our child and is in the session's scope before it
// is executed. It has a socket and a configuration of its own; the user's ~/.tmux.conf is read only
// where that is asked for.
package tmux

import (
	"bytes"
	"context"
	_ "embed" // for the configuration
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

// commandTimeout bounds each tmux command: a server that hangs must not hang us.
const commandTimeout = 10 * time.Second

// The size of a pane that nobody is attached to: wide enough for an agent's tables, as high as a
// common laptop's terminal.
const (
	width  = 120
	height = 40
)

// maxSocketPath is what sun_path of a socket address holds, less the closing NUL (unix(7)).
const maxSocketPath = 107

// Tmux knows how to run tmux for sessions.
type Tmux struct {
	Program string   // the tmux to execute
	Config  string   // path of our configuration, written by Prepare
	Env     []string // what a server and the panes that people open in it get; an agent has its own
	BusAddr string   // DBUS_SESSION_BUS_ADDRESS for these panes
}

// Session is the tmux session of one Corral session.
type Session struct {
	Socket      string // path
	Name        string // the id; tmux shows it to people
	Window      string // name of the window that Run opens, "" to leave it to tmux
	ServerPID   int    // process number of the server, 0 if not known
	AgentExited bool   // the exit of the agent is known
}

// Prepare finds tmux and writes the configuration into directory dir, which lives as long as the
// login.
func Prepare(dir string, env []string, busAddr string) (*Tmux, error) {
	program, err := exec.LookPath("tmux")
	if err != nil {
		return nil, errors.New("tmux is not installed")
	}
	config := filepath.Join(dir, ".tmux.conf") // no session can be called so, whose directory it would be
	if err := atomicfile.Write(config+lasting, []byte(afterUser), 0o600); err != nil {
		return nil, fmt.Errorf("cannot write tmux's configuration: %w", err)
	}
	t := &Tmux{Program: program, Config: config, Env: env, BusAddr: busAddr}
	return t, t.SetDetachKey("")
}

// NewSession returns the tmux session for the Corral session id, whose socket is in directory dir.
func NewSession(dir, id string) (Session, error) {
	// tmux gives . and : a meaning in targets, and would rename the session.
	s := Session{Socket: filepath.Join(dir, "tmux"), Name: strings.ReplaceAll(id, ".", "_")}
	if len(s.Socket) > maxSocketPath {
		return s, fmt.Errorf("the path of the tmux socket is longer than %d bytes: %q", maxSocketPath, s.Socket)
	}
	return s, nil
}

// ServerPID is a tmux server of a session.
type Server struct {
	PID   int // it is our child: the caller reaps it
	PIDFD int // belongs to the caller
	gate  *os.File
}

// gate is what a server's process does before it executes tmux: it waits until its standard input
// is closed, by Execute or by our end. It does not exit in the latter case: systemd does not report
// the end of a scope whose only process has exited before it was moved there.
const gate = `read -r _; exec "$0" "$@" </dev/null`

// StartServer starts the session's server, which has nothing in it yet, in the control group whose
// directory is open as cgroup. If cgroup is negative, the process is in our own control group and
// waits there as a shell until Execute is called, so that it can be moved: memory stays charged to
// the control group in which it was allocated, not to that in which the process is (the kernel's
// cgroup-v2 document, "Memory Ownership"), and tmux allocates half of its memory within
// milliseconds. The memory of the shell is freed by its execve(2).
//
// The server reads the configurations of a user after ours. Reconfigure reports what is invalid in
// them.
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
	// A tmux that finds the user's bus moves each new pane into a scope of its own (since 3.4), out of
	// the session's. Without an address it would look for the bus in XDG_RUNTIME_DIR, so it gets one
	// that leads nowhere.
	env := append(withoutName(t.Env, "DBUS_SESSION_BUS_ADDRESS"), "DBUS_SESSION_BUS_ADDRESS=disabled:")
	server, stdin, program := &Server{PIDFD: -1}, null, t.Program
	argv := append([]string{"tmux", "-u", "-D", "-S", s.Socket, "-f", t.Config}, t.userFlags(user)...)
	if cgroup < 0 {
		if stdin, server.gate, err = os.Pipe(); err != nil {
			return nil, fmt.Errorf("cannot start tmux: %w", err)
		}
		defer func() { _ = stdin.Close() }()
		argv = append([]string{"sh", "-c", gate, t.Program}, argv[1:]...)
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

// Execute has a server that was started without a control group execute tmux.
func (s *Server) Execute() {
	if s.gate != nil {
		_ = s.gate.Close()
		s.gate = nil
	}
}

// Close closes what we have open of the server.
func (s *Server) Close() {
	s.Execute()
	_ = unix.Close(s.PIDFD)
}

// IsServer tells whether a process with these arguments is a server of the session, as StartServer
// starts it.
func IsServer(s Session, args []string) bool {
	i := slices.Index(args, "-S")
	return i > 0 && i+1 < len(args) && args[i+1] == s.Socket && slices.Contains(args[:i], "-D")
}

// Run opens the session with one pane, in which the command runs in directory dir.
func (t *Tmux) Run(ctx context.Context, s Session, dir string, command []string) error {
	args := []string{"-N", "set-environment", "-g", "DBUS_SESSION_BUS_ADDRESS", t.BusAddr, ";"}
	args = append(args, "new-session", "-d", "-s", s.Name, "-x", strconv.Itoa(width), "-y", strconv.Itoa(height),
		"-c", literal(unexpanded(dir)))
	if s.Window != "" {
		args = append(args, "-n", literal(unexpanded(s.Window)))
	}
	args = append(args, "--")
	for _, arg := range command {
		args = append(args, literal(arg))
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

// IsResponding tells whether the server is there and answers.
func (t *Tmux) IsResponding(ctx context.Context, s Session) bool {
	_, err := t.command(ctx, s, "-N", "display-message", "-p", "ok")
	return err == nil
}

// SendKeys presses keys, by tmux's names, in the agent's pane. A mode that a person has left the
// pane in, such as that to scroll back, would take them: it is ended.
func (t *Tmux) SendKeys(ctx context.Context, s Session, keys []string) error {
	pane := t.places(ctx, s).pane
	args := []string{"-N", "copy-mode", "-q", "-t", pane, ";", "send-keys", "-t", pane, "--"}
	for _, key := range keys {
		args = append(args, literal(key))
	}
	if _, err := t.command(ctx, s, args...); err != nil {
		return fmt.Errorf("cannot send keys to %q: %w", s.Name, err)
	}
	// The server answers before it has written the keys into the pane, but writes them before it hears
	// of another client.
	if _, err := t.command(ctx, s, "-N", "display-message", "-p", "-t", pane, ""); err != nil {
		return fmt.Errorf("cannot find out whether %q received its keys: %w", s.Name, err)
	}
	return nil
}

// IsAttached tells whether a terminal is attached to the session. It asks nobody: a server marks its
// socket as executable for that time (server.c, server_update_socket), which inotify tells of as
// IN_ATTRIB.
func (s Session) IsAttached() bool {
	info, err := os.Lstat(s.Socket)
	return err == nil && info.Mode()&0o100 != 0
}

// HasFocus tells whether somebody looks at the session at this moment: whether a terminal is
// attached to it that has the focus, or does not tell.
func (t *Tmux) HasFocus(ctx context.Context, s Session) bool {
	out, err := t.command(ctx, s, "-N", "list-clients", "-F", "#{client_flags}")
	return err == nil && focused(string(out))
}

// focused looks for a terminal with the focus in a list of the terminals' flags.
func focused(clients string) bool {
	for flags := range strings.FieldsSeq(clients) {
		if slices.Contains(strings.Split(flags, ","), "focused") {
			return true
		}
	}
	return false
}

// messageTime is how long a message stays, unless a key is pressed: meanwhile tmux does not draw
// what the agent prints.
const messageTime = 3 * time.Second

// Message shows a text in the status line of every terminal that is attached to the session. The
// text may be anybody's: it is shown as it is, but for a space between # and [, which tmux would
// take for a style.
func (t *Tmux) Message(ctx context.Context, s Session, text string) error {
	out, err := t.command(ctx, s, "-N", "list-clients", "-F", "#{client_name}")
	if err != nil {
		return fmt.Errorf("cannot list the terminals of %q: %w", s.Name, err)
	}
	clients := strings.Fields(string(out))
	if len(clients) == 0 {
		return nil
	}
	// A message is a format, and a time's. What an option's value has in it is neither expanded again
	// nor a command's.
	const option = "@corral-message"
	args := []string{"-N", "set-option", "-s", option, literal(strings.ReplaceAll(text, "#[", "# ["))}
	for _, client := range clients {
		args = append(args, ";", "display-message", "-c", client, "-d", strconv.FormatInt(messageTime.Milliseconds(), 10), "#{"+option+"}")
	}
	if _, err := t.command(ctx, s, append(args, ";", "set-option", "-su", option)...); err != nil {
		return fmt.Errorf("cannot show a message in the terminals of %q: %w", s.Name, err)
	}
	return nil
}

// AttachCommand returns the argument vector that attaches a terminal to the session. The terminal
// is taken for one that has UTF-8, as all that Corral writes takes it: tmux would go by the locale,
// which many that have it do not tell, such as a window that the user's manager opens, and show "_"
// for what is not ASCII. The session is meant by its name as long as it has that: who hands the
// arguments to a shell as they are gets what was meant, which an id, "$0", is not.
func (t *Tmux) AttachCommand(ctx context.Context, s Session) []string {
	p := t.places(ctx, s)
	if p.name == s.Name {
		p.session = "=" + s.Name
	}
	return []string{t.client(s), "-u", "-N", "-S", s.Socket, "attach-session", "-t", p.session}
}

// unexpanded returns a text so that tmux, which takes it for a format, leaves it as it is. A format
// can run commands.
func unexpanded(text string) string { return strings.ReplaceAll(text, "#", "##") }

// literal returns an argument so that tmux takes it as it is: one that ends with a semicolon would
// end its command.
func literal(arg string) string {
	if before, ok := strings.CutSuffix(arg, ";"); ok {
		return before + `\;`
	}
	return arg
}

// The options in which a server keeps the ids of the session and of the agent's pane.
const (
	sessionOption = "@corral-session"
	paneOption    = "@corral-pane"
)

// places is where a person has put what there is of a session.
type places struct {
	session, pane string // targets
	name          string // of the session by now, "" if it is not known
}

// places returns targets that stay what they are when a person renames the session, splits, swaps
// or moves the pane: ids. A server that does not tell them, as one that an older Corral has
// started, has them by their names.
func (t *Tmux) places(ctx context.Context, s Session) places {
	const name = "#{S:#{?#{==:#{session_id},#{" + sessionOption + "}},#{session_name},}}"
	out, err := t.command(ctx, s, "-N", "display-message", "-p", "#{"+sessionOption+"} #{"+paneOption+"} "+name)
	if found := strings.SplitN(strings.TrimSuffix(string(out), "\n"), " ", 3); err == nil && len(found) == 3 && found[0] != "" {
		return places{found[0], found[1], found[2]}
	}
	return places{session: "=" + s.Name, pane: s.pane()}
}

// pane is the target of the agent's pane as long as nobody has moved it: the first one of the first
// window.
func (s Session) pane() string { return "=" + s.Name + ":^.{top-left}" }

// client returns the program to talk to the server with. After an upgrade of the package a new
// client may not speak to an old server, but the server's own program can still be executed.
func (t *Tmux) client(s Session) string {
	if s.ServerPID != 0 {
		exe := "/proc/" + strconv.Itoa(s.ServerPID) + "/exe"
		if target, err := os.Readlink(exe); err == nil && strings.HasSuffix(target, " (deleted)") {
			return exe
		}
	}
	return t.Program
}

// clients bounds the tmux clients that run at a time: each one is a process and a thread of ours,
// and a Go process that gets no more threads ends. corrald.service has TasksMax= for this many and
// more.
var clients = make(chan struct{}, 256)

// command runs a tmux command and returns what it prints. The error is what it prints to standard
// error.
func (t *Tmux) command(ctx context.Context, s Session, args ...string) ([]byte, error) {
	out, errs, err := t.feed(ctx, s, "", args...)
	if text := strings.TrimSpace(errs); err != nil && text != "" {
		return nil, errors.New(text)
	}
	return out, err
}

// feed runs a tmux command with input and returns what it prints to standard output and to standard
// error.
func (t *Tmux) feed(ctx context.Context, s Session, input string, args ...string) (out []byte, errs string, err error) {
	ctx, cancel := deadline.Context(ctx, commandTimeout)
	defer cancel()
	select {
	case clients <- struct{}{}:
		defer func() { <-clients }()
	case <-ctx.Done():
		return nil, "", fmt.Errorf("tmux does not answer: %w", ctx.Err()) // nor do those that others ask
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

// Reap collects a server that has ended, if it is our child. It never waits.
func Reap(pid int) {
	var status unix.WaitStatus
	_, _ = unix.Wait4(pid, &status, unix.WNOHANG, nil)
}

func withoutName(env []string, name string) []string {
	var kept []string
	for _, e := range env {
		if !strings.HasPrefix(e, name+"=") {
			kept = append(kept, e)
		}
	}
	return kept
}
