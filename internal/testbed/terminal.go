package testbed

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// terminal is the controlling terminal, nil if there is none.
type terminal struct{ file *os.File }

func openTerminal() *terminal {
	file, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	return &terminal{file: file}
}

// foreground reports whether this process is in the terminal's foreground process group and
// receives its signals.
func (t *terminal) foreground() bool {
	if t == nil {
		return false
	}
	group, err := unix.IoctlGetInt(int(t.file.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// close makes this process group the foreground one again, after a command that made its own group
// the foreground one, as an interactive shell does: inside its pid namespace the shell could not
// name our group.
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
