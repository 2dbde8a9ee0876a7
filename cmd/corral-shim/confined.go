package main

import (
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/program"
	"github.com/corrald/corral/internal/shimwire"
)

// runConfined runs an agent in a sandbox, as the first process of its PID namespace: it is the
// parent of all processes there that have lost their own, and when it exits, the kernel kills the
// rest.
func runConfined(args []string) int {
	if kind, err := unix.GetsockoptInt(sandboxSocket, unix.SOL_SOCKET, unix.SO_TYPE); err != nil ||
		kind != unix.SOCK_SEQPACKET {
		printError("confined is only for corral-shim run")
		return exitFailure
	}
	runtime.GOMAXPROCS(1)
	runtime.LockOSThread() // what restrict does applies to this thread, and to its children
	unblockSignals()
	defaultLibrarySignals()
	_ = unix.CloseRange(sandboxSocket, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
	if _, err := catchSignals(); err != nil {
		return failConfined(err)
	}
	if err := announce(); err != nil {
		return failConfined(err)
	}
	restrict()
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) // the agent cannot trace this process
	dir, err := os.Getwd()
	if err != nil {
		return failConfined(err)
	}
	a, err := startAgent(&shimwire.Spec{Args: args, Env: os.Environ(), Dir: dir}, 0)
	if err != nil {
		return failConfined(err)
	}
	message := make([]byte, 0, 1+binary.Size(exitMessage{}))
	if preallocate() != nil ||
		unix.Sendmsg(sandboxSocket, []byte{agentStarted}, unix.UnixRights(a.pidfd), nil, unix.MSG_NOSIGNAL) != nil {
		return exitFailure
	}
	replaceStandardDescriptors()
	_, _ = receiveFromSandbox(sandboxSocket) // agentIdentified, or nothing from a shim that was killed
	for {
		var ws unix.WaitStatus
		var usage unix.Rusage
		switch pid, err := unix.Wait4(-1, &ws, 0, &usage); {
		case err != nil && err != unix.EINTR:
			return exitFailure
		case pid == a.pid:
			m := exitMessage{uint32(ws), usage.Utime.Nano(), usage.Stime.Nano(), usage.Maxrss}
			message, _ = binary.Append(append(message, agentExited), binary.LittleEndian, m)
			_ = unix.Send(sandboxSocket, message, unix.MSG_NOSIGNAL)
			return 0
		}
	}
}

// announce reports that this process is ready, and waits until the agent may be started.
func announce() error {
	self, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(self) }()
	err = unix.Sendmsg(sandboxSocket, []byte{confinedReady}, unix.UnixRights(self), nil, unix.MSG_NOSIGNAL)
	_, _ = receiveFromSandbox(sandboxSocket)
	return err
}

// failConfined reports an error to the shim outside of the sandbox.
func failConfined(err error) int {
	code, text := exitFailure, err.Error()
	if e := (*program.Error)(nil); errors.As(err, &e) {
		code = e.Code
	} else {
		text = "cannot set up the sandbox: " + text
	}
	text = text[:min(len(text), maxSandboxError)]
	_ = unix.Send(sandboxSocket, append([]byte{agentFailed, byte(code)}, text...), unix.MSG_NOSIGNAL)
	return code
}

// restrict keeps the calling thread, and its children, from connecting to the abstract sockets
// (unix(7)) of processes outside, such as those of X11 and of some message buses: they belong to
// the network namespace, and have no file that a mount namespace could hide. It requires Linux
// 6.12; before that, only a sandbox without network has none of them.
func restrict() {
	attr := unix.LandlockRulesetAttr{Scoped: unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET}
	ruleset, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET,
		uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if e != 0 {
		return
	}
	if unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == nil {
		_, _, _ = unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0, 0)
	}
	_ = unix.Close(int(ruleset))
}
