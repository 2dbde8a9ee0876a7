package main

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// innerTerminal is the agent's pseudoterminal.
type innerTerminal struct {
	master int
	// The shim's own descriptor, for querying unread input. It also keeps the master from reporting a
	// hangup when the agent closes its descriptors.
	slave int
}

// openInner creates the agent's terminal with the settings and the size of the pane, if there is
// one.
func openInner(mode *unix.Termios, size *unix.Winsize) (innerTerminal, error) {
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return innerTerminal{}, &os.PathError{Op: "open", Path: "/dev/ptmx", Err: err}
	}
	t := innerTerminal{master: master}
	if err = unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err == nil {
		t.slave, err = t.openSlave(unix.O_NONBLOCK)
	}
	if err == nil {
		err = unix.IoctlSetTermios(t.slave, unix.TCSETS, mode)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(master, unix.TIOCSWINSZ, size)
	}
	return t, err
}

// openSlave opens the agent's end without using /dev/pts.
func (t innerTerminal) openSlave(flags int) (int, error) {
	fd, _, e := unix.Syscall(unix.SYS_IOCTL,
		uintptr(t.master), unix.TIOCGPTPEER, uintptr(unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|flags))
	if e != 0 {
		return -1, os.NewSyscallError("TIOCGPTPEER", e)
	}
	return int(fd), nil
}

// readsLines reports whether the terminal is in canonical mode (termios(3)), in which each terminal
// begins. Programs that draw a screen leave it first.
func (t innerTerminal) readsLines() bool {
	mode, err := unix.IoctlGetTermios(t.slave, unix.TCGETS)
	return err == nil && mode.Lflag&unix.ICANON != 0
}

// saneSettings returns the default settings of a terminal (see stty(1), sane), for an agent that
// starts without a pane.
func saneSettings() *unix.Termios {
	t := &unix.Termios{
		Iflag: unix.BRKINT | unix.ICRNL | unix.IXON | unix.IMAXBEL | unix.IUTF8,
		Oflag: unix.OPOST | unix.ONLCR,
		Cflag: unix.CS8 | unix.CREAD | unix.HUPCL | unix.B38400,
		Lflag: unix.ISIG | unix.ICANON | unix.IEXTEN | unix.ECHO | unix.ECHOE | unix.ECHOK | unix.ECHOCTL | unix.ECHOKE,
	}
	t.Ispeed, t.Ospeed = unix.B38400, unix.B38400
	for i, c := range map[int]byte{
		unix.VINTR: 'C' & 31, unix.VQUIT: 28, unix.VERASE: 127, unix.VKILL: 'U' & 31, unix.VEOF: 'D' & 31,
		unix.VSTART: 'Q' & 31, unix.VSTOP: 'S' & 31, unix.VSUSP: 'Z' & 31, unix.VREPRINT: 'R' & 31,
		unix.VDISCARD: 'O' & 31, unix.VWERASE: 'W' & 31, unix.VLNEXT: 'V' & 31, unix.VMIN: 1,
	} {
		t.Cc[i] = c
	}
	return t
}

// rawSettings returns mode changed so that every byte is passed unchanged: the agent's own terminal
// interprets keys and line ends.
func rawSettings(mode *unix.Termios) *unix.Termios {
	t := *mode
	t.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP |
		unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON | unix.IXOFF
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	t.Cflag &^= unix.CSIZE | unix.PARENB
	t.Cflag |= unix.CS8
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	return &t
}

// pane is the terminal that shows the agent, if there is one.
type pane struct {
	fd       int // a separate open file description, non-blocking; -1 if there is no pane
	mode     *unix.Termios
	readable bool
	writable bool
	server   tmuxServer
	joined   *conn // connection of the shim that runs in the pane; nil if it is this one
}

// openPane opens the terminal fd again, so that making it non-blocking does not affect other
// processes. If fd is not a terminal there is no pane.
func openPane(fd int) pane {
	p := pane{fd: -1}
	mode, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return p
	}
	own, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil { // another user's terminal, as after su: share its open file description
		own, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil || unix.SetNonblock(own, true) != nil {
			return p
		}
	}
	p.fd, p.mode = own, mode
	return p
}

// isOpen reports whether there is a pane.
func (p *pane) isOpen() bool { return p.fd >= 0 }

// size returns the size of the pane, including pixels, or 80x24.
func (p *pane) size() *unix.Winsize {
	if p.isOpen() {
		if w, err := unix.IoctlGetWinsize(p.fd, unix.TIOCGWINSZ); err == nil && w.Row > 0 && w.Col > 0 {
			return w
		}
	}
	return &unix.Winsize{Row: 24, Col: 80}
}

func (p *pane) makeRaw() {
	if p.isOpen() {
		_ = unix.IoctlSetTermios(p.fd, unix.TCSETS, rawSettings(p.mode))
	}
}

// release restores the terminal's settings and closes it.
func (p *pane) release() {
	if p.isOpen() {
		_ = unix.IoctlSetTermios(p.fd, unix.TCSETS, p.mode)
		_ = unix.Close(p.fd)
		p.fd, p.readable, p.writable = -1, false, false
	}
	p.server.release()
}
