package ground

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/supervisor/session"
)

// process returns the process with this id.
func process(t *testing.T, pid int) session.Process {
	t.Helper()
	st, err := proc.Stat(pid)
	require.NoError(t, err)
	return session.Process(st.Identity)
}

// TestDialShim_ChecksWhoListens: this process listens in the place of the shim of each target.
func TestDialShim_ChecksWhoListens(t *testing.T) {
	group, err := proc.Cgroup(os.Getpid())
	require.NoError(t, err)
	self, parent := process(t, os.Getpid()), process(t, os.Getppid())
	for _, row := range []struct {
		name   string
		target supervisor.Target
		is     bool
	}{
		{"the process that is known", supervisor.Target{Shim: self}, true},
		{"the process that is known, in another control group", supervisor.Target{Shim: self, ControlGroup: "/other.scope"}, true},
		{"another process than the one that is known, in its control group", supervisor.Target{Shim: parent, ControlGroup: group}, false},
		{"another process than the one that is known, with its number", supervisor.Target{Shim: session.Process{PID: self.PID, Start: 1}, ControlGroup: group}, false},
		{"the number alone is known, and it is in the control group", supervisor.Target{Shim: session.Process{PID: self.PID}, ControlGroup: group}, true},
		{"the number alone is known, and it is in another control group", supervisor.Target{Shim: session.Process{PID: self.PID}, ControlGroup: "/other.scope"}, false},
		{"nothing is known, and it is in the control group", supervisor.Target{ControlGroup: group}, true},
		{"nothing is known, and it is in another control group", supervisor.Target{ControlGroup: "/other.scope"}, false},
		{"nothing is known, and a control group begins alike", supervisor.Target{ControlGroup: group[:len(group)-1]}, len(group) == 1},
		{"nothing is known, and it is a child of the tmux server, which has moved it", supervisor.Target{ControlGroup: "/other.scope", Tmux: parent}, true},
		{"nothing is known, not even a control group", supervisor.Target{Unit: "app-corral-command-shop.scope"}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.target.RuntimeDir = t.TempDir()
			listener, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
			require.NoError(t, err)
			defer func() { _ = unix.Close(listener) }()
			require.NoError(t, unix.Bind(listener, &unix.SockaddrUnix{Name: row.target.ShimSocket()}))
			require.NoError(t, unix.Listen(listener, 1))
			fd, shim, err := new(Ground).DialShim(row.target)
			if row.is {
				require.NoError(t, err)
				require.NoError(t, unix.Close(fd))
				assert.Equal(t, self, shim)
				return
			}
			var foreign *supervisor.ForeignSocketError
			require.ErrorAs(t, err, &foreign)
			assert.Equal(t, supervisor.ForeignSocketError{Path: row.target.ShimSocket(), PID: self.PID, ControlGroup: group}, *foreign)
		})
	}
}

func TestRunning(t *testing.T) {
	child := exec.Command("cat")
	stdin, err := child.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	p := process(t, child.Process.Pid)
	g := new(Ground)
	assert.True(t, g.Running(p))
	assert.Equal(t, os.Getpid(), g.Parent(p.PID))
	assert.False(t, g.Running(session.Process{PID: p.PID, Start: p.Start + 1}), "another process with this number")
	require.NoError(t, child.Process.Signal(unix.SIGSTOP))
	assert.True(t, g.Running(p), "a stopped process has not ended")
	require.NoError(t, child.Process.Signal(unix.SIGCONT))
	require.NoError(t, stdin.Close())
	require.NoError(t, unix.Waitid(unix.P_PID, p.PID, nil, unix.WEXITED|unix.WNOWAIT, nil))
	assert.False(t, g.Running(p), "a process that nobody has waited for yet has ended")
	require.NoError(t, child.Wait())
	assert.False(t, g.Running(p))
	assert.Zero(t, g.Parent(p.PID))
}
