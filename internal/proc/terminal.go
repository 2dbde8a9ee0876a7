package proc

import (
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// LastInput returns when input was last read from the controlling terminal of a process, as w(1)
// shows it. The time is up to eight seconds too early, because the kernel updates it only that
// often. LastInput returns zero if nothing has been read yet, or if the process does not exist or
// its terminal is not a pseudoterminal.
func LastInput(pid int) time.Time {
	s, err := Stat(pid)
	if err != nil || unix.Major(s.TTY) != ptyMajor {
		return time.Time{}
	}
	info, err := os.Stat("/dev/pts/" + strconv.FormatUint(uint64(unix.Minor(s.TTY)), 10))
	if err != nil {
		return time.Time{}
	}
	terminal, ok := info.Sys().(*syscall.Stat_t)
	if !ok || terminal.Rdev != s.TTY {
		return time.Time{}
	}
	// A new terminal has three equal times. Only reading changes the first one: see tty_update_time in
	// the kernel's drivers/tty/tty_io.c.
	read, created := time.Unix(terminal.Atim.Unix()), time.Unix(terminal.Ctim.Unix())
	if !read.After(created) {
		return time.Time{}
	}
	return read
}

// ptyMajor is the major device number of pseudoterminals: see Documentation/admin-guide/devices.txt
// of the kernel.
const ptyMajor = 136
