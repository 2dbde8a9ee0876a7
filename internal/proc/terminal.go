package proc

import (
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// LastInput returns when input was last read from the controlling terminal of a process, as w(1)
// shows it. The kernel updates the time only every eight seconds: it is up to eight seconds too
// early, and what is read from a terminal that is less than eight seconds old may not set it.
// LastInput returns zero if nothing else has been read, or if the process does not exist or its
// terminal is not a pseudoterminal.
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
	return lastRead(terminal.Atim, terminal.Ctim)
}

// lastRead returns when a terminal was last read, zero if it never was. The arguments are the times
// of its last access and of the last change of its inode, which are equal for a new terminal. Only
// reading changes the first one, which most kernels then set to a whole second: see tty_update_time
// in drivers/tty/tty_io.c. That shows a read even after the inode alone was changed, as by mesg(1).
func lastRead(access, change syscall.Timespec) time.Time {
	read, changed := time.Unix(access.Unix()), time.Unix(change.Unix())
	if read.After(changed) || read.Before(changed) && access.Nsec == 0 {
		return read
	}
	return time.Time{}
}

// ptyMajor is the major device number of pseudoterminals: see Documentation/admin-guide/devices.txt
// of the kernel.
const ptyMajor = 136
