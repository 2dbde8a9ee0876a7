package main

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// System calls of the main loop are raw system calls. None of them blocks, and an ordinary system
// call would wake the runtime's monitor thread each time after the process was idle, which then
// polls for half a millisecond.

func sysRead(fd int, b []byte) (int, unix.Errno) {
	return sysTransfer(unix.SYS_READ, fd, unsafe.Pointer(unsafe.SliceData(b)), len(b))
}

func sysWrite(fd int, b []byte) (int, unix.Errno) {
	return sysTransfer(unix.SYS_WRITE, fd, unsafe.Pointer(unsafe.SliceData(b)), len(b))
}

// sysTransfer makes a system call that returns a number of bytes, and repeats it if a signal has
// interrupted it. last is its last argument: a size, or flags.
func sysTransfer(call uintptr, fd int, data unsafe.Pointer, last int) (int, unix.Errno) {
	for {
		n, _, e := unix.RawSyscall(call, uintptr(fd), uintptr(data), uintptr(last))
		if e == 0 {
			return int(n), 0
		}
		if e != unix.EINTR {
			return 0, e
		}
	}
}

// sysOpen opens a file for reading; path must end with NUL.
func sysOpen(path []byte) (int, unix.Errno) {
	const here = unix.AT_FDCWD
	at := here
	fd, _, e := unix.RawSyscall6(unix.SYS_OPENAT,
		uintptr(at), uintptr(unsafe.Pointer(unsafe.SliceData(path))), unix.O_RDONLY|unix.O_CLOEXEC, 0, 0, 0)
	return int(fd), e
}

func sysSend(fd int, b []byte) unix.Errno {
	_, _, e := unix.RawSyscall6(unix.SYS_SENDTO,
		uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)),
		unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	return e
}

func sysReceive(fd int, h *unix.Msghdr) (int, unix.Errno) {
	return sysTransfer(unix.SYS_RECVMSG, fd, unsafe.Pointer(h), unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
}

func sysAccept(fd int) (int, unix.Errno) {
	n, _, e := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(fd), 0, 0, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
	if e != 0 {
		return -1, e
	}
	return int(n), 0
}

// sysPeer returns the ID of the process that has connected, in the shim's PID namespace, or 0 if it
// has none there (SO_PEERCRED in unix(7)).
func sysPeer(fd int) (int32, unix.Errno) {
	var peer unix.Ucred
	size := uint32(unsafe.Sizeof(peer))
	_, _, e := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERCRED,
		uintptr(unsafe.Pointer(&peer)), uintptr(unsafe.Pointer(&size)), 0)
	return peer.Pid, e
}

func sysEpollWait(fd int, events []unix.EpollEvent) int {
	n, _, e := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT,
		uintptr(fd), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), 0, 0, 0)
	if e != 0 {
		return 0
	}
	return int(n)
}

func sysSetTimer(fd int, value *unix.ItimerSpec) {
	_, _, _ = unix.RawSyscall6(unix.SYS_TIMERFD_SETTIME, uintptr(fd), 0, uintptr(unsafe.Pointer(value)), 0, 0, 0)
}

// sysUnread returns how many bytes in the terminal fd were not read yet, or an error. A kernel
// thread, which may run late on a busy machine, moves written bytes to the other side: poll(2) of a
// terminal waits for that (n_tty_poll), TIOCINQ does not.
func sysUnread(fd int) (int, unix.Errno) {
	var n int32
	poll := unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	_, _, _ = unix.Syscall6(unix.SYS_PPOLL,
		uintptr(unsafe.Pointer(&poll)), 1, uintptr(unsafe.Pointer(&unix.Timespec{})), 0, 0, 0)
	_, _, e := unix.RawSyscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCINQ, uintptr(unsafe.Pointer(&n)))
	return int(n), e
}

// sysLinks returns the number of links of the file fd: 0 if it was removed. It returns 1 if the
// number is unknown. For a file on a network file system it does not query the server.
func sysLinks(fd int) uint32 {
	var st unix.Statx_t
	path := [1]byte{}
	_, _, e := unix.RawSyscall6(unix.SYS_STATX,
		uintptr(fd), uintptr(unsafe.Pointer(&path)), unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC,
		unix.STATX_NLINK, uintptr(unsafe.Pointer(&st)), 0)
	if e != 0 || st.Mask&unix.STATX_NLINK == 0 {
		return 1
	}
	return st.Nlink
}

// sysDefaultSignal sets a signal to SIG_DFL: a struct sigaction of zeros. Its size differs between
// architectures but is never larger than action.
func sysDefaultSignal(signal uintptr) {
	var action [4]uint64
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, signal, uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
}
