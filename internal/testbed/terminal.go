package testbed

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// terminal is the controlling terminal, nil where there is none.
type terminal struct{ file *os.File }

func openTerminal() *terminal {
	file, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	return &terminal{file: file}
}

// foreground tells whether the terminal sends its signals to us too.
func (t *terminal) foreground() bool {
	if t == nil {
		return false
	}
	group, err := unix.IoctlGetInt(int(t.file.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// close takes the terminal back from a command that made a process group of its own the foreground
// one, as an interactive shell does: from within its pid namespace it could not name ours.
func (t *terminal) close() {
	if t == nil {
		return
	}
	group, err := unix.IoctlGetInt(int(t.file.Fd()), unix.TIOCGPGRP)
	if err == nil && group != unix.Getpgrp() && unix.Kill(-group, 0) == unix.ESRCH {
		signal.Ignore(unix.SIGTTOU)
		_ = unix.IoctlSetPointerInt(int(t.file.Fd()), unix.TIOCSPGRP, unix.Getpgrp())
	}
	_ = t.file.Close()
}
