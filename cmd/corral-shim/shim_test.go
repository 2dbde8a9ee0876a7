package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/internal/shimwire"
)

// deadline is how long a test waits for an expected event.
const deadline = 20 * time.Second

// TestMain makes the test binary act as the shim, or as an agent that cannot be a shell script, if
// it is called by that name.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "corral-shim":
		main()
	case "sizes":
		printSizes()
	case "reads":
		printReads()
	case "asks":
		askQuestions()
	case "computes":
		compute()
	}
	os.Exit(m.Run())
}

// printSizes prints the size of its terminal, at once and after each SIGWINCH.
func printSizes() {
	resized := make(chan os.Signal, 8)
	signal.Notify(resized, unix.SIGWINCH)
	for {
		w, err := unix.IoctlGetWinsize(1, unix.TIOCGWINSZ)
		if err != nil {
			os.Exit(1)
		}
		_, _ = fmt.Printf("size %d %d %d %d\n", w.Row, w.Col, w.Xpixel, w.Ypixel)
		<-resized
	}
}

// makeTerminalRaw makes each byte readable at once, without echo.
func makeTerminalRaw() {
	mode, err := unix.IoctlGetTermios(0, unix.TCGETS)
	if err != nil {
		os.Exit(1)
	}
	mode.Lflag &^= unix.ICANON | unix.ECHO
	mode.Iflag &^= unix.ICRNL
	_ = unix.IoctlSetTermios(0, unix.TCSETS, mode)
}

// printReads prints what each read from its terminal returns.
func printReads() {
	makeTerminalRaw()
	_, _ = fmt.Println("go")
	for b := make([]byte, 4096); ; {
		n, err := os.Stdin.Read(b)
		if err != nil {
			os.Exit(1)
		}
		_, _ = fmt.Printf("read %q\n", b[:n])
	}
}

// init keeps a program that computes on its main thread, whose state the kernel shows as that of
// the process.
func init() {
	if filepath.Base(os.Args[0]) == "computes" {
		runtime.LockOSThread()
	}
}

// compute computes for a second after it has read a paste or "!" and printed something. It prints
// how many bytes have arrived until a moment later, and then what it reads.
func compute() {
	makeTerminalRaw()
	_, _ = fmt.Print("\x1b[?2004hgo\r\n")
	b := make([]byte, 1)
	for read := ""; !strings.HasSuffix(read, string(pasteEnd)) && !strings.HasSuffix(read, "!"); read += string(b) {
		if _, err := os.Stdin.Read(b); err != nil {
			os.Exit(1)
		}
	}
	_, _ = fmt.Print("echo\r\n")
	sum := 0
	for begin := time.Now(); time.Since(begin) < time.Second; {
		sum++
	}
	<-time.After(50 * time.Millisecond)
	unread, _ := sysUnread(0)
	_, _ = os.Stdin.Read(b)
	_, _ = fmt.Printf("unread %d, then %q after %d steps\r\n", unread, b, sum)
	os.Exit(0)
}

// testSession has the directories and the spec of one session of a test.
type testSession struct {
	t    *testing.T
	dir  string
	shim string // the program
	uid  int    // owner of the directories
	spec shimwire.Spec
}

func newTestSession(t *testing.T, args ...string) *testSession {
	t.Helper()
	dir := shortDir(t)
	exe, err := os.Executable()
	require.NoError(t, err)
	ts := &testSession{t: t, dir: dir, shim: filepath.Join(dir, "corral-shim"), uid: os.Getuid()}
	for _, name := range []string{"corral-shim", "sizes", "reads", "asks", "computes"} {
		require.NoError(t, os.Symlink(exe, filepath.Join(dir, name)))
	}
	for _, d := range []string{"state", "run", "work"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, d), 0o700))
	}
	ts.spec = shimwire.Spec{
		RunID: "run-1", Dir: filepath.Join(dir, "work"), Args: args,
		Env: []string{
			"PATH=" + dir + ":/usr/local/bin:/usr/bin:/bin", "TERM=xterm-256color", "LANG=C.UTF-8", "PS1=ready> ",
		},
		StateDir: filepath.Join(dir, "state"), Socket: filepath.Join(dir, "run", "shim.sock"),
		LogMax: 1 << 20, IdleAfter: 300 * time.Millisecond, Session: "shop", Program: "agent",
	}
	return ts
}

// shortDir creates a directory whose path is short enough for sockets in it.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "shim") //nolint:usetesting // t.TempDir is too long for a tmux socket
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (ts *testSession) writeSpec() string {
	ts.t.Helper()
	path := filepath.Join(ts.dir, "run", "spec")
	require.NoError(ts.t, os.WriteFile(path, ts.spec.Append(nil), 0o600))
	require.NoError(ts.t, os.Chown(path, ts.uid, -1))
	return path
}

func (ts *testSession) log() string {
	ts.t.Helper()
	b, err := os.ReadFile(filepath.Join(ts.spec.StateDir, shimwire.LogName))
	require.NoError(ts.t, err)
	return string(b)
}

func (ts *testSession) status() exitstatus.Status {
	ts.t.Helper()
	s, err := exitstatus.Read(ts.spec.StateDir)
	require.NoError(ts.t, err)
	return s
}

// waitForFile waits until path exists.
func waitForFile(t *testing.T, path string) {
	t.Helper()
	w, err := fsnotify.NewWatcher()
	require.NoError(t, err)
	defer func() { _ = w.Close() }()
	require.NoError(t, w.Add(filepath.Dir(path)))
	late := time.After(deadline)
	for {
		if _, err := os.Lstat(path); err == nil {
			return
		}
		select {
		case <-w.Events:
		case err := <-w.Errors:
			require.NoError(t, err)
		case <-late:
			t.Fatalf("%s was not created", path)
		}
	}
}

// testTerminal is a terminal in which a shim runs, as in a tmux pane but without tmux.
type testTerminal struct {
	*testSession
	master *os.File
	cmd    *exec.Cmd

	mu    sync.Mutex
	got   bytes.Buffer
	fresh chan struct{} // something was printed
	done  chan struct{} // the shim has ended
}

// startShim starts the session's shim in a new terminal.
func (ts *testSession) startShim(change ...func(*exec.Cmd)) *testTerminal {
	ts.t.Helper()
	s := &testTerminal{testSession: ts, fresh: make(chan struct{}, 1), done: make(chan struct{})}
	slave := s.openTerminal()
	s.cmd = exec.Command(ts.shim, "run", ts.writeSpec())
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = slave, slave, slave
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	for _, f := range change {
		f(s.cmd)
	}
	require.NoError(ts.t, s.cmd.Start())
	require.NoError(ts.t, slave.Close())
	go s.read()
	go func() { _ = s.cmd.Wait(); close(s.done) }()
	ts.t.Cleanup(s.cleanup)
	return s
}

func (s *testTerminal) openTerminal() *os.File {
	s.t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	require.NoError(s.t, err)
	s.master = os.NewFile(uintptr(fd), "master")
	require.NoError(s.t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	slave, err := innerTerminal{master: fd}.openSlave(0)
	require.NoError(s.t, err)
	require.NoError(s.t, unix.IoctlSetTermios(slave, unix.TCSETS, saneSettings()))
	s.setSize(30, 100)
	return os.NewFile(uintptr(slave), "slave")
}

func (s *testTerminal) setSize(rows, cols uint16) {
	s.t.Helper()
	require.NoError(s.t, unix.IoctlSetWinsize(int(s.master.Fd()), unix.TIOCSWINSZ,
		&unix.Winsize{Row: rows, Col: cols, Xpixel: cols * 8, Ypixel: rows * 16}))
	require.NoError(s.t, unix.SetNonblock(int(s.master.Fd()), true)) // Fd made it blocking
}

func (s *testTerminal) read() {
	b := make([]byte, 64<<10)
	for {
		n, err := s.master.Read(b)
		s.mu.Lock()
		s.got.Write(b[:n])
		s.mu.Unlock()
		select {
		case s.fresh <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// waitFor waits until text was printed.
func (s *testTerminal) waitFor(text string) {
	s.t.Helper()
	late := time.After(deadline)
	for {
		s.mu.Lock()
		there := strings.Contains(s.got.String(), text)
		all := s.got.String()
		s.mu.Unlock()
		if there {
			return
		}
		select {
		case <-s.fresh:
		case <-late:
			s.t.Fatalf("%q was not printed; printed: %q", text, all)
		}
	}
}

func (s *testTerminal) printed() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got.String()
}

func (s *testTerminal) typeKeys(text string) {
	s.t.Helper()
	_, err := s.master.WriteString(text)
	require.NoError(s.t, err)
}

// wait waits until the shim has ended, and returns its exit code.
func (s *testTerminal) wait() int {
	s.t.Helper()
	select {
	case <-s.done:
	case <-time.After(deadline):
		s.t.Fatalf("the shim has not exited; printed: %q", s.printed())
	}
	return s.cmd.ProcessState.ExitCode()
}

// cleanup ends the shim and closes the terminal.
func (s *testTerminal) cleanup() {
	select {
	case <-s.done:
	default:
		_ = s.cmd.Process.Kill()
		<-s.done
	}
	_ = s.master.Close()
}

// daemon is a connection to a shim.
type daemon struct {
	t     *testing.T
	fd    int
	hello shimwire.Message
}

// connect waits for the session's socket, connects to it, and receives the Hello.
func (ts *testSession) connect() *daemon {
	ts.t.Helper()
	waitForFile(ts.t, ts.spec.Socket)
	fd, err := shimwire.DialWait(ts.spec.Socket)
	require.NoError(ts.t, err)
	d := &daemon{t: ts.t, fd: fd}
	ts.t.Cleanup(d.close)
	d.hello = d.next()
	require.Equal(ts.t, shimwire.Hello, d.hello.Kind)
	return d
}

func (d *daemon) close() {
	if d.fd >= 0 {
		_ = unix.Close(d.fd)
		d.fd = -1
	}
}

var errClosed = errors.New("the connection is closed")

func (d *daemon) receive() (shimwire.Message, error) {
	p := []unix.PollFd{{Fd: int32(d.fd), Events: unix.POLLIN}}
	for end := time.Now().Add(deadline); ; {
		n, err := unix.Poll(p, int(max(time.Until(end).Milliseconds(), 0)))
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return shimwire.Message{}, errors.New("no message was received")
		}
		break
	}
	b := make([]byte, shimwire.MaxMessage)
	n, _, err := unix.Recvfrom(d.fd, b, 0)
	if err != nil {
		return shimwire.Message{}, err
	}
	if n == 0 {
		return shimwire.Message{}, errClosed
	}
	return shimwire.ParseMessage(b[:n])
}

// next returns the next message. It ignores Typed: most tests type.
func (d *daemon) next() shimwire.Message {
	d.t.Helper()
	for {
		if m := d.nextOfAll(); m.Kind != shimwire.Typed {
			return m
		}
	}
}

func (d *daemon) nextOfAll() shimwire.Message {
	d.t.Helper()
	m, err := d.receive()
	require.NoError(d.t, err)
	return m
}

// expect waits for a message of this kind and ignores others.
func (d *daemon) expect(kind shimwire.Kind) shimwire.Message {
	d.t.Helper()
	for {
		if m := d.nextOfAll(); m.Kind == kind {
			return m
		}
	}
}

func (d *daemon) send(m shimwire.Message) {
	d.t.Helper()
	require.NoError(d.t, unix.Sendto(d.fd, m.Append(nil), unix.MSG_NOSIGNAL, &unix.SockaddrUnix{}))
}

// sendTextAndWait sends a text and returns the answer.
func (d *daemon) sendTextAndWait(seq uint32, text string, flags uint32) shimwire.Message {
	d.t.Helper()
	d.sendText(seq, text, flags)
	m := d.expect(shimwire.InputDone)
	require.Equal(d.t, seq, m.Seq)
	return m
}

func (d *daemon) sendText(seq uint32, text string, flags uint32) {
	d.t.Helper()
	for len(text) > shimwire.MaxData {
		d.send(shimwire.Message{
			Kind: shimwire.Input, Seq: seq, Flags: shimwire.FlagMore, Data: []byte(text[:shimwire.MaxData]),
		})
		text = text[shimwire.MaxData:]
	}
	d.send(shimwire.Message{Kind: shimwire.Input, Seq: seq, Flags: flags, Data: []byte(text)})
}

// writeFile and readFile access files in the workspace.
func (ts *testSession) writeFile(name, text string) {
	ts.t.Helper()
	require.NoError(ts.t, os.WriteFile(filepath.Join(ts.spec.Dir, name), []byte(text), 0o600))
}

func (ts *testSession) readFile(name string) string {
	ts.t.Helper()
	b, err := os.ReadFile(filepath.Join(ts.spec.Dir, name))
	require.NoError(ts.t, err)
	return string(b)
}

// killAgent kills only the agent.
func (ts *testSession) killAgent(d *daemon) {
	ts.t.Helper()
	require.NoError(ts.t, unix.Kill(d.hello.AgentPID, unix.SIGKILL))
}

// chown makes another user the owner of all files of the session, and replaces the link to the test
// binary by a copy that this user can execute.
func (ts *testSession) chown(uid int) {
	ts.t.Helper()
	ts.uid = uid
	exe, err := os.Executable()
	require.NoError(ts.t, err)
	b, err := os.ReadFile(exe)
	require.NoError(ts.t, err)
	require.NoError(ts.t, os.Remove(ts.shim))
	require.NoError(ts.t, os.WriteFile(ts.shim, b, 0o700))
	require.NoError(ts.t, filepath.WalkDir(ts.dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, uid, -1)
	}))
}
