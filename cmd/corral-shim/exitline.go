package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/internal/outcome"
	"github.com/corrald/corral/internal/shimwire"
)

// resetModes aborts an incomplete sequence (CAN) and resets a terminal, except for its screen, to
// the state without a program: attributes, character sets, insert and wrap modes, cursor and keypad
// keys, mouse, focus events, bracketed paste, synchronized output, cursor, and the key formats of
// XTMODKEYS and of the kitty keyboard protocol. resetMargins resets the scroll region and the
// origin mode, and moves the cursor.
const (
	resetModes = "\x18\x1b[0m\x1b(B\x1b)B\x0f\x1b[?2026l\x1b[4l\x1b[?7h\x1b[?1l\x1b>" +
		"\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1005l\x1b[?1006l\x1b[?1004l\x1b[?2004l\x1b[?25h\x1b[>4;0m\x1b[<99u"
	resetMargins = "\x1b[r\x1b[?6l"
)

// exitLineNice is the nice value with which the line is prepared, so that this does not delay the
// daemon, which reports the exit at the same time.
const exitLineNice = 10

// maxExitLine is the length limit of the line, in columns: a terminal of 80 columns that attaches
// later must not wrap it.
const maxExitLine = 79

// showExitLine prints a line with the result below the agent's last output, after the exit was
// recorded, unless the daemon ends the scope now. The line is not logged. The shim does not know
// the cells of its pane, and the cursor may be anywhere, so it asks tmux: the line goes below the
// last row that is not blank. Only a full screen scrolls into the history, by one row. The
// alternate screen has no history: its content is copied to the normal screen.
func (s *shim) showExitLine(status exitstatus.Status) {
	hasPane := s.pane.isOpen() && s.pane.server.pidfd > 0
	if s.spec.Session == "" || !hasPane || len(s.out.pending()) > 0 || s.scopeEnds {
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// This sets the nice value of this thread, from which the tmux clients are forked.
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, exitLineNice)
	deadline := time.Now().Add(drainTimeout)
	line := exitLine(s.spec.Session, s.spec.Program, status, int(s.pane.size().Col))
	b := append([]byte(resetModes), "\r\n"+line...)
	if screen, err := s.pane.screen(deadline); err == nil {
		b = screen.withLine(line)
	}
	if writeAll(s.pane.fd, b, deadline) {
		s.pane.awaitTmux(deadline)
	}
}

// exitLine returns the line for a pane with this number of columns.
func exitLine(session, program string, status exitstatus.Status, columns int) string {
	var how string
	switch status.Code {
	case exitstatus.Killed, exitstatus.Dumped:
		how = "was killed by " + outcome.SignalName(status.Value)
		if status.Code == exitstatus.Dumped {
			how += " (core dumped)"
		}
	default:
		how = fmt.Sprintf("exited with code %d", status.Value)
	}
	const format = "%s%s %s. Restart or log: corralctl attach %s"
	line := []rune(fmt.Sprintf(format, shimwire.ExitLinePrefix, program, how, session))
	if most := min(columns, maxExitLine+1) - 1; len(line) > most {
		line = line[:max(most, 0)]
	}
	return string(line)
}

// paneScreen is what tmux shows in a pane.
type paneScreen struct {
	alternate bool
	height    int
	rows      []string // with escape sequences for attributes
}

// withLine returns the output that adds a line to the screen.
func (p paneScreen) withLine(line string) []byte {
	used := len(p.rows)
	for used > 0 && isBlank(p.rows[used-1]) {
		used--
	}
	b := []byte(resetModes + resetMargins)
	switch {
	case p.alternate:
		b = append(b, "\x1b[?1049l"+resetModes+resetMargins+"\x1b[H\x1b[2J\x1b)0"...)
		for _, row := range p.rows[:used] {
			b = append(b, row+"\r\n"...)
		}
		b = append(b, "\x0f\x1b)B\x1b[0m"...)
	case used < p.height:
		b = fmt.Appendf(b, "\x1b[%d;1H", used+1)
	default:
		b = fmt.Appendf(b, "\x1b[%d;1H\n", p.height)
	}
	return append(b, line...)
}

// isBlank reports whether a row of tmux's capture-pane consists only of attributes and spaces.
func isBlank(row string) bool {
	for {
		row = strings.TrimLeft(row, " \x0e\x0f")
		if !strings.HasPrefix(row, "\x1b[") {
			return row == ""
		}
		end := strings.IndexByte(row, 'm')
		if end < 0 {
			return false
		}
		row = row[end+1:]
	}
}

// screen returns what the pane shows according to its tmux server.
func (p *pane) screen(deadline time.Time) (paneScreen, error) {
	tty, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(p.fd))
	if err != nil {
		return paneScreen{}, err
	}
	id := os.Getenv("TMUX_PANE")
	if p.joined != nil { // the pane belongs to the shim that has joined
		id = ""
	}
	if id == "" {
		panes, err := p.server.run(deadline, "list-panes", "-a", "-f", "#{==:#{pane_tty},"+tty+"}", "-F", "#{pane_id}")
		if err != nil {
			return paneScreen{}, err
		}
		id = strings.TrimSpace(panes)
	}
	out, err := p.server.run(deadline,
		"display-message", "-p", "-t", id, "#{alternate_on} #{pane_height}", ";",
		"capture-pane", "-p", "-e", "-N", "-t", id)
	if err != nil {
		return paneScreen{}, err
	}
	first, text, _ := strings.Cut(out, "\n")
	screen := paneScreen{rows: strings.Split(strings.TrimSuffix(text, "\n"), "\n")}
	var alternate int
	if _, err := fmt.Sscan(first, &alternate, &screen.height); err != nil {
		return paneScreen{}, err
	}
	screen.alternate = alternate != 0
	return screen, nil
}

// run runs a tmux command on the server and returns its output. The client is the server's own
// executable, so that both use the same protocol.
func (s *tmuxServer) run(deadline time.Time, args ...string) (string, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return "", err
	}
	defer func() { _ = unix.Close(fds[0]) }()
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		_ = unix.Close(fds[1])
		return "", err
	}
	argv := append([]string{shimwire.TmuxClient, "-u", "-N", "-S", s.socket}, args...)
	pid, err := syscall.ForkExec("/proc/"+strconv.Itoa(s.pid)+"/exe", argv, &syscall.ProcAttr{
		Env: []string{"PATH=/usr/bin:/bin"}, Files: []uintptr{uintptr(null), uintptr(fds[1]), uintptr(null)},
	})
	_ = unix.Close(null)
	_ = unix.Close(fds[1])
	if err != nil {
		return "", err
	}
	out, err := readAll(fds[0], deadline)
	if err != nil {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	if ws, _ := waitChild(pid); err == nil && ws != 0 {
		err = fmt.Errorf("tmux: status %#x", int(ws))
	}
	return string(out), err
}

// readAll reads from a pipe until its other end is closed.
func readAll(fd int, deadline time.Time) ([]byte, error) {
	var all bytes.Buffer
	room := make([]byte, 4<<10)
	for {
		n, e := sysRead(fd, room)
		switch {
		case e == unix.EAGAIN && poll(fd, unix.POLLIN, deadline):
			continue
		case e != 0:
			return nil, e
		case n == 0:
			return all.Bytes(), nil
		}
		all.Write(room[:n])
	}
}

// writeAll writes all of b. It returns false if that is not possible before the deadline.
func writeAll(fd int, b []byte, deadline time.Time) bool {
	for len(b) > 0 {
		n, e := sysWrite(fd, b)
		if e != 0 && (e != unix.EAGAIN || !poll(fd, unix.POLLOUT, deadline)) {
			return false
		}
		if e == 0 {
			b = b[n:]
		}
	}
	return true
}

// poll waits until one of the poll(2) events is pending for fd. It returns false at the deadline.
func poll(fd int, events int16, deadline time.Time) bool {
	for {
		left := time.Until(deadline).Milliseconds()
		if left <= 0 {
			return false
		}
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: events}}, int(left)); err != unix.EINTR {
			return true
		}
	}
}
