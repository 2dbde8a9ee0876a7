package main

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls of the steady state are raw: none of them blocks, and an ordinary one would wake the
// runtime's monitor thread each time the process was idle before, which then looks around for half
// a millisecond.

func sysRead(fd int, b []byte) (int, unix.Errno) {
	for {
		n, _, e := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		if e == 0 {
			return int(n), 0
		}
		if e != unix.EINTR {
			return 0, e
		}
	}
}

func sysWrite(fd int, b []byte) (int, unix.Errno) {
	for {
		n, _, e := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		if e == 0 {
			return int(n), 0
		}
		if e != unix.EINTR {
			return 0, e
		}
	}
}

// sysOpen opens a file for reading; path ends with NUL.
func sysOpen(path []byte) (int, unix.Errno) {
	const here = unix.AT_FDCWD
	at := here
	fd, _, e := unix.RawSyscall6(unix.SYS_OPENAT, uintptr(at), uintptr(unsafe.Pointer(unsafe.SliceData(path))), unix.O_RDONLY|unix.O_CLOEXEC, 0, 0, 0)
	return int(fd), e
}

func sysSend(fd int, b []byte) unix.Errno {
	_, _, e := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)),
		unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	return e
}

func sysReceive(fd int, h *unix.Msghdr) (int, unix.Errno) {
	for {
		n, _, e := unix.RawSyscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(h)), unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		if e == 0 {
			return int(n), 0
		}
		if e != unix.EINTR {
			return 0, e
		}
	}
}

func sysAccept(fd int) (int, unix.Errno) {
	n, _, e := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(fd), 0, 0, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
	if e != 0 {
		return -1, e
	}
	return int(n), 0
}

// sysPeer returns the process that has made a connection, by its id in our pid namespace: 0 if it
// has none there (SO_PEERCRED in unix(7)).
func sysPeer(fd int) (int32, unix.Errno) {
	var peer unix.Ucred
	size := uint32(unsafe.Sizeof(peer))
	_, _, e := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERCRED,
		uintptr(unsafe.Pointer(&peer)), uintptr(unsafe.Pointer(&size)), 0)
	return peer.Pid, e
}

func sysEpollWait(fd int, events []unix.EpollEvent) int {
	n, _, e := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(fd), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), 0, 0, 0)
	if e != 0 {
		return 0
	}
	return int(n)
}

func sysSetTimer(fd int, value *unix.ItimerSpec) {
	_, _, _ = unix.RawSyscall6(unix.SYS_TIMERFD_SETTIME, uintptr(fd), 0, uintptr(unsafe.Pointer(value)), 0, 0, 0)
}

// sysUnread returns how many bytes wait in the terminal fd for its reader, or that this cannot be
// found out. What was written to the other side is handed on by a kernel thread, which a busy
// machine may run late: poll(2) of a terminal waits for that (n_tty_poll), and TIOCINQ does not.
func sysUnread(fd int) (int, unix.Errno) {
	var n int32
	poll := unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	_, _, _ = unix.Syscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&poll)), 1, uintptr(unsafe.Pointer(&unix.Timespec{})), 0, 0, 0)
	_, _, e := unix.RawSyscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCINQ, uintptr(unsafe.Pointer(&n)))
	return int(n), e
}

// sysLinks tells how many names the file fd has: none if it was removed. One of which that cannot
// be told has one. No server is asked for it, where the file is on one.
func sysLinks(fd int) uint32 {
	var st unix.Statx_t
	path := [1]byte{}
	_, _, e := unix.RawSyscall6(unix.SYS_STATX, uintptr(fd), uintptr(unsafe.Pointer(&path)), unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC,
		unix.STATX_NLINK, uintptr(unsafe.Pointer(&st)), 0)
	if e != 0 || st.Mask&unix.STATX_NLINK == 0 {
		return 1
	}
	return st.Nlink
}

// sysDefaultSignal sets a signal to SIG_DFL: all of struct sigaction is zero, whose size differs
// between architectures but is never larger.
func sysDefaultSignal(signal uintptr) {
	var action [4]uint64
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, signal, uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
}
