package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/program"
	"github.com/corrald/corral/internal/shimwire"
)

// In a sandbox, the agent is not a child of the shim: bubblewrap leaves a process of its own
// outside, and creates PID and mount namespaces, which only a process inside can use to execute the
// agent and to wait for it. So there is a second shim inside ("confined"), the first process of the
// PID namespace. It sends sandboxMessages on a socket that it inherits as descriptor sandboxSocket:
// started or failed, and then exited.
const (
	sandboxSocket  = 3
	sandboxOptions = 4 // of bubblewrap: the file with its options, separated by NUL
)

// Kinds of sandboxMessages, their first byte.
const (
	confinedReady = 'r' // with a pidfd of the confined shim: the agent is not started yet
	agentStarted  = 's' // with a pidfd of the agent
	agentFailed   = 'f' // the exit code, one byte, and the error as text
	agentExited   = 'x' // an exitMessage

	// The answers: to confinedReady, that the agent may be started; to agentStarted, that it may be
	// reaped, which frees its process ID.
	proceed         = 'p'
	agentIdentified = 'i'
)

// exitMessage is how the agent has ended, as wait4(2) reports it: times in nanoseconds, memory in
// KiB.
type exitMessage struct {
	Status                       uint32
	UserTime, SystemTime, MaxRSS int64
}

// maxSandboxError bounds the text of an error in a sandboxMessage, or of bubblewrap, in bytes.
const maxSandboxError = 4 << 10

// startConfined is startAgent in the sandbox that the spec describes. The error of a sandbox that
// could not be set up is a *program.Error, too.
func startConfined(spec *shimwire.Spec, slave int) (agent, error) {
	a := agent{pidfd: -1}
	if err := program.CheckWorkspace(spec.Dir); err != nil {
		return a, err
	}
	// If bubblewrap's own process is killed, as by a stop of all processes, this one becomes the
	// parent of the confined shim, and remains an ancestor of the agent.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return a, sandboxError(err.Error())
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return a, sandboxError(err.Error())
	}
	stderr, errorPipe, err := os.Pipe()
	if err != nil {
		return a, sandboxError(err.Error())
	}
	defer func() { _ = stderr.Close() }()
	args, options, err := passOptions(spec.Args, spec.SandboxArgs)
	if err != nil {
		return a, sandboxError(err.Error())
	}
	a.sandbox = pair[0]
	a.started = time.Now()
	a.sandboxPID, err = syscall.ForkExec(args[0], args, &syscall.ProcAttr{
		Dir: spec.Dir, Env: spec.Env,
		Files: []uintptr{uintptr(slave), uintptr(slave), errorPipe.Fd(), uintptr(pair[1]), options.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true, PidFD: &a.sandboxPidfd},
	})
	_, _, _ = unix.Close(pair[1]), errorPipe.Close(), options.Close()
	if err != nil {
		return a, sandboxError(spec.Args[0] + ": " + err.Error())
	}
	message, passed := receiveFromSandbox(a.sandbox)
	if len(message) > 0 && message[0] == confinedReady && passed >= 0 {
		a.confined = passed
		setNextPID(a.confined)
		_ = unix.Send(a.sandbox, []byte{proceed}, unix.MSG_NOSIGNAL)
		message, passed = receiveFromSandbox(a.sandbox)
	}
	switch {
	case len(message) > 1 && message[0] == agentFailed:
		return a, &program.Error{Text: string(message[2:]), Code: int(message[1])}
	case len(message) == 0 || message[0] != agentStarted || passed < 0:
		text, _ := io.ReadAll(io.LimitReader(stderr, maxSandboxError))
		return a, sandboxError(string(bytes.TrimSpace(text)))
	}
	a.pidfd = passed
	if a.pid, err = pidOf(a.pidfd); err != nil {
		return a, sandboxError(err.Error())
	}
	status, _ := proc.Stat(a.pid)
	a.startTicks = status.Start
	_ = unix.Send(a.sandbox, []byte{agentIdentified}, unix.MSG_NOSIGNAL)
	return a, nil
}

// passOptions returns the command with the options of bubblewrap in a file, which is to be
// inherited as descriptor sandboxOptions. They are long, and name the user's files: every user of
// the machine can read the arguments of a process.
func passOptions(args []string, sandboxArgs int) (short []string, options *os.File, err error) {
	end := slices.Index(args[:sandboxArgs], "--")
	if end < 1 {
		return nil, nil, errors.New("its command has no end of options")
	}
	fd, err := unix.MemfdCreate("options", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, nil, err
	}
	options = os.NewFile(uintptr(fd), "options")
	if _, err = options.WriteString(strings.Join(args[1:end], "\x00") + "\x00"); err == nil {
		_, err = options.Seek(0, io.SeekStart)
	}
	return slices.Concat(args[:1], []string{"--args", strconv.Itoa(sandboxOptions)}, args[end:]), options, err
}

func sandboxError(text string) error {
	return &program.Error{Text: "cannot set up the sandbox: " + text, Code: exitFailure}
}

// receiveFromSandbox waits for a message of the confined shim. It returns nothing if that has
// exited.
func receiveFromSandbox(socket int) (message []byte, passed int) {
	message, control := make([]byte, maxSandboxError+2), make([]byte, unix.CmsgSpace(4))
	for {
		n, size, _, _, err := unix.Recvmsg(socket, message, control, unix.MSG_CMSG_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, -1
		}
		messages, _ := unix.ParseSocketControlMessage(control[:size])
		for i := range messages {
			if fds, err := unix.ParseUnixRights(&messages[i]); err == nil && len(fds) == 1 {
				return message[:n], fds[0]
			}
		}
		return message[:n], -1
	}
}

// pidOf returns the ID of the process behind a pidfd in this PID namespace.
func pidOf(pidfd int) (int, error) {
	text, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(pidfd))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, is := strings.CutPrefix(line, "Pid:"); is {
			pid, err := strconv.Atoi(strings.TrimSpace(value))
			if err == nil && pid <= 0 {
				err = errors.New("the agent has exited already")
			}
			return pid, err
		}
	}
	return 0, errors.New("the kernel does not report the agent's process ID")
}

// setNextPID makes process IDs in a PID namespace unlike those of other namespaces, where the same
// few numbers would be used again and again: agents have lock files with the IDs of their
// processes, and take that of an agent which was killed, or is in another sandbox, for their own.
// If this is not possible, the agent is started nevertheless.
//
// Only a process in the namespace can do this (ns_last_pid in proc_sys_kernel(5)), with
// capabilities in the user namespace that owns it, which its creator has, and bubblewrap has given
// up.
func setNextPID(first int) {
	pid, err := pidOf(first)
	if err != nil {
		return
	}
	namespace, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/ns/pid", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(namespace) }()
	owner, err := unix.IoctlRetInt(namespace, unix.NS_GET_USERNS)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(owner) }()
	text, _ := proc.ReadFile("/proc/sys/kernel/pid_max")
	limit, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || limit <= 2*reservedPIDs {
		return
	}
	next := strconv.Itoa(reservedPIDs + pid*pidDistance%(limit-2*reservedPIDs))
	nsenter, err := program.Find("nsenter", []string{"PATH=" + os.Getenv("PATH") + ":/usr/bin:/bin"}, "/")
	if err != nil {
		return
	}
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(null) }()
	child, err := syscall.ForkExec(nsenter, []string{
		"nsenter", "--user=/proc/self/fd/3", "--pid=/proc/self/fd/4", "--preserve-credentials", "--",
		"sh", "-c", "echo " + next + " >/proc/sys/kernel/ns_last_pid",
	}, &syscall.ProcAttr{
		Dir: "/", Env: os.Environ(),
		Files: []uintptr{uintptr(null), uintptr(null), uintptr(null), uintptr(owner), uintptr(namespace)},
	})
	if err == nil {
		waitChild(child)
	}
}

const (
	// reservedPIDs are not used for the next process: the kernel itself continues at 300 after it has
	// used the greatest one.
	reservedPIDs = 300
	// pidDistance is how far the first processes of sandboxes are apart that are started one after the
	// other.
	pidDistance = 61
)

// sandboxExitTime bounds how long the processes of a sandbox may take to exit after its agent.
const sandboxExitTime = time.Second

// waitConfined waits for the end of the agent in a sandbox, and of the sandbox with all processes
// in it. If the confined shim was killed, the kernel has killed them all.
func (a *agent) waitConfined() (ws unix.WaitStatus, usage unix.Rusage) {
	message, _ := receiveFromSandbox(a.sandbox)
	var m exitMessage
	if len(message) == 0 || message[0] != agentExited {
		ws = unix.WaitStatus(unix.SIGKILL)
	} else if _, err := binary.Decode(message[1:], binary.LittleEndian, &m); err == nil {
		ws = unix.WaitStatus(m.Status)
		usage.Utime, usage.Stime = unix.NsecToTimeval(m.UserTime), unix.NsecToTimeval(m.SystemTime)
		usage.Maxrss = m.MaxRSS
	}
	if proc.WaitExit(a.sandboxPidfd, sandboxExitTime) {
		waitChild(a.sandboxPID)
	}
	return ws, usage
}
