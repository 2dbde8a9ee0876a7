package proc

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// start runs a program that lives until the test ends.
func start(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(name, args...)
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// waitZombie waits until the process has exited, without reaping it.
func waitZombie(t *testing.T, pid int) {
	t.Helper()
	require.NoError(t, unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil))
}

func TestStat_OfThisProcess(t *testing.T) {
	s, err := Stat(os.Getpid())
	require.NoError(t, err)
	assert.Equal(t, os.Getpid(), s.PID)
	assert.Equal(t, os.Getppid(), s.Parent)
	assert.Equal(t, unix.Getpgrp(), s.Group)
	assert.NotZero(t, s.Start)
}

func TestStat_OfProcessWithUnusualName(t *testing.T) {
	name := t.TempDir() + "/a) Z 1 (b"
	require.NoError(t, os.Symlink("/bin/cat", name))
	cmd := start(t, name)
	s, err := Stat(cmd.Process.Pid)
	require.NoError(t, err)
	assert.Equal(t, "a) Z 1 (b", s.Comm)
	assert.Equal(t, os.Getpid(), s.Parent)
}

func TestStat_OfMissingProcess(t *testing.T) {
	for _, pid := range []int{0, -1, 1 << 30} {
		_, err := Stat(pid)
		assert.ErrorIs(t, err, fs.ErrNotExist, "pid %d", pid)
	}
}

func TestParseStat(t *testing.T) {
	const tail = " S 7 8 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 6 7 8\n"
	for name, c := range map[string]struct {
		line string
		want Status
		err  string
	}{
		"plain":                  {"12 (cat)" + tail, Status{Identity{12, 4242}, "cat", 'S', 7, 8, 9, 0}, ""},
		"spaces and parentheses": {"12 (a ) R 1 (b)" + tail, Status{Identity{12, 4242}, "a ) R 1 (b", 'S', 7, 8, 9, 0}, ""},
		"a newline in the name":  {"12 (a\nb)" + tail, Status{Identity{12, 4242}, "a\nb", 'S', 7, 8, 9, 0}, ""},
		"an empty name":          {"12 ()" + tail, Status{Identity{12, 4242}, "", 'S', 7, 8, 9, 0}, ""},
		"a terminal": {"12 (cat) S 7 8 9 34819 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 6",
			Status{Identity{12, 4242}, "cat", 'S', 7, 8, 9, unix.Mkdev(136, 3)}, ""},
		"no name":                    {"12 cat" + tail, Status{}, "no name"},
		"parentheses the wrong way":  {"12 )(" + tail, Status{}, "no name"},
		"cut off":                    {"12 (cat) S 7 8 9", Status{}, "too short"},
		"nothing":                    {"", Status{}, "no name"},
		"a word instead of a number": {"12 (cat) S x 8 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 6", Status{}, `"x"`},
		"a negative start time":      {"12 (cat) S 7 8 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 -3 6", Status{}, `"-3"`},
	} {
		t.Run(name, func(t *testing.T) {
			s, comm, err := ParseStat([]byte(c.line))
			s.Comm = string(comm)
			if c.err != "" {
				assert.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.want, s)
		})
	}
}

// TestParsers_DoNotAllocate: the shim uses them while it runs, with buffers on its stack.
func TestParsers_DoNotAllocate(t *testing.T) {
	const (
		stat   = "12 (cat) S 7 8 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 6 7 8\n"
		groups = "4:memory:/y\n0::/z\n"
		events = "low 0\noom 3\noom_kill 7\n"
	)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		var buffer [512]byte
		s, comm, err := ParseStat(buffer[:copy(buffer[:], stat)])
		require.True(t, err == nil && s.Group == 8 && len(comm) == 3)
		group := ParseCgroup(buffer[:copy(buffer[:], groups)])
		require.True(t, bytes.Equal(group, []byte("/z")))
		kills, ok := FlatKeyed(buffer[:copy(buffer[:], events)], "oom_kill")
		require.True(t, ok && kills == 7)
	}))
}

func TestIgnoresSignal(t *testing.T) {
	cmd := exec.Command("/bin/sh", "-c", `trap "" TERM; echo ready; read line`)
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = stdin.Close(); _ = cmd.Wait() })
	_, err = stdout.Read(make([]byte, 6)) // the trap is set before the output
	require.NoError(t, err)

	assert.True(t, IgnoresSignal(cmd.Process.Pid, syscall.SIGTERM))
	assert.False(t, IgnoresSignal(cmd.Process.Pid, syscall.SIGUSR1))
	assert.False(t, IgnoresSignal(0, syscall.SIGTERM), "process 0 does not exist")
}

func TestMaskHas(t *testing.T) {
	status := []byte("Name:\tx\nSigBlk:\t0000000000000001\nSigIgn:\t8000000000004001\nSigCgt:\t0\n")
	for signal, want := range map[syscall.Signal]bool{
		1: true, 2: false, 15: true, 63: false, 64: true, 0: false, 65: false, -1: false,
	} {
		assert.Equal(t, want, maskHas(status, "SigIgn", signal), "signal %d", signal)
	}
	assert.False(t, maskHas([]byte("SigIgn:\tzz\n"), "SigIgn", 1))
}

func TestChildren_IncludesZombies(t *testing.T) {
	shell := exec.Command("/bin/sh", "-c", "sleep 1000 & echo $!; exec cat") // cat reaps nothing, a shell might
	stdin, err := shell.StdinPipe()
	require.NoError(t, err)
	stdout, err := shell.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, shell.Start())
	t.Cleanup(func() { _ = stdin.Close(); _ = shell.Wait() })
	var child int
	_, err = fmt.Fscan(stdout, &child)
	require.NoError(t, err)
	defer func() { _ = unix.Kill(child, unix.SIGKILL) }()
	_, err = io.WriteString(stdin, "replaced\n")
	require.NoError(t, err)
	var echo string
	_, err = fmt.Fscan(stdout, &echo)
	require.NoError(t, err, "cat repeats what it reads")
	fd, err := unix.PidfdOpen(child, 0)
	require.NoError(t, err)
	defer func() { _ = unix.Close(fd) }()
	require.NoError(t, unix.Kill(child, unix.SIGKILL))
	require.True(t, WaitExit(fd, 10*time.Second))
	children, err := Children(shell.Process.Pid)
	require.NoError(t, err)
	assert.Equal(t, []int{child}, children)
	_, err = Children(1 << 30)
	assert.ErrorIs(t, err, fs.ErrNotExist)
}

func TestBootID(t *testing.T) {
	id, err := BootID()
	require.NoError(t, err)
	assert.Regexp(t, `^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`, id)
}

func TestOpenPidfd(t *testing.T) {
	cmd := start(t, "/bin/cat")
	s, err := Stat(cmd.Process.Pid)
	require.NoError(t, err)

	t.Run("the process itself: the descriptor reports its exit", func(t *testing.T) {
		fd, err := OpenPidfd(s.Identity)
		require.NoError(t, err)
		t.Cleanup(func() { _ = unix.Close(fd) })
		require.NoError(t, cmd.Process.Kill())
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int((10 * time.Second).Milliseconds()))
		require.NoError(t, err)
		assert.Equal(t, 1, n)
	})
	t.Run("a zombie is still itself", func(t *testing.T) {
		waitZombie(t, s.PID)
		fd, err := OpenPidfd(s.Identity)
		require.NoError(t, err)
		require.NoError(t, unix.Close(fd))
		z, err := Stat(s.PID)
		require.NoError(t, err)
		assert.Equal(t, byte('Z'), z.State)
	})
	t.Run("another process with the same id", func(t *testing.T) {
		_, err := OpenPidfd(Identity{os.Getpid(), 1})
		assert.ErrorIs(t, err, unix.ESRCH)
	})
	t.Run("a reaped process", func(t *testing.T) {
		_ = cmd.Wait()
		_, err := OpenPidfd(s.Identity)
		assert.ErrorIs(t, err, unix.ESRCH)
	})
}

func TestIdentity_DistinguishesProcesses(t *testing.T) {
	a, err := Stat(start(t, "/bin/cat").Process.Pid)
	require.NoError(t, err)
	b, err := Stat(start(t, "/bin/cat").Process.Pid)
	require.NoError(t, err)
	assert.NotEqual(t, a.Identity, b.Identity)
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("12 (a ) R 1 (b) S 7 8 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 6 7 8\n"))
	f.Add([]byte("1 () Z"))
	f.Add([]byte(")("))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, comm, err := ParseStat(b)
		if err != nil {
			return
		}
		line := fmt.Sprintf("%d (%s) %c %d %d %d 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 %d",
			s.PID, comm, s.State, s.Parent, s.Group, s.Session, s.Start)
		again, name, err := ParseStat([]byte(line))
		same := err == nil && again == s && bytes.Equal(name, comm)
		if s.State > ' ' && s.State < 0x7f && s.State != ')' && !same {
			t.Fatalf("%+v became %+v (%v)", s, again, err)
		}
	})
}

func TestVariable(t *testing.T) {
	t.Setenv("CORRAL_SESSION", "not in what it was executed with")
	_, ok := Variable(os.Getpid(), "CORRAL_SESSION")
	assert.False(t, ok)
	path, ok := Variable(os.Getpid(), "PATH")
	assert.True(t, ok)
	assert.NotEmpty(t, path)
	_, ok = Variable(1<<30, "PATH")
	assert.False(t, ok)
}

// FuzzVariable checks that a value belongs to an entry with exactly this name.
func FuzzVariable(f *testing.F) {
	for _, seed := range []string{
		"A=b\x00CORRAL_SESSION=shop\x00", "XCORRAL_SESSION=shop\x00", "CORRAL_SESSION=", "\x00\x00=",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, environ []byte) {
		if value, ok := variable(environ, "CORRAL_SESSION"); ok {
			require.Contains(t, "\x00"+string(environ)+"\x00", "\x00CORRAL_SESSION="+value+"\x00")
			require.NotContains(t, value, "\x00")
		}
	})
}

// TestWaitExit_IsNotInterruptedBySignals: the wait continues when another child of this process
// exits.
func TestWaitExit_IsNotInterruptedBySignals(t *testing.T) {
	long := exec.Command("sleep", "infinity")
	require.NoError(t, long.Start())
	defer func() { _ = long.Wait() }()
	defer func() { _ = long.Process.Kill() }()
	stat, err := Stat(long.Process.Pid)
	require.NoError(t, err)
	pidfd, err := OpenPidfd(stat.Identity)
	require.NoError(t, err)
	defer func() { _ = unix.Close(pidfd) }()
	const limit = 300 * time.Millisecond
	var others sync.WaitGroup
	for i := range 5 {
		other := exec.Command("sleep", "0."+strconv.Itoa(i))
		require.NoError(t, other.Start())
		others.Go(func() { _ = other.Wait() })
	}
	begin := time.Now()
	assert.False(t, WaitExit(pidfd, limit))
	assert.GreaterOrEqual(t, time.Since(begin), limit)
	others.Wait()
	require.NoError(t, long.Process.Kill())
	assert.True(t, WaitExit(pidfd, time.Minute))
}
