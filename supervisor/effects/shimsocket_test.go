package effects

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/supervisor/session"
)

// TestDialShim_ChecksWhoListens listens, in this process, at the socket of each target's shim.
func TestDialShim_ChecksWhoListens(t *testing.T) {
	group, err := proc.Cgroup(os.Getpid())
	require.NoError(t, err)
	self, parent := process(t, os.Getpid()), process(t, os.Getppid())
	const other = "/other.scope"
	pid := session.Process{PID: self.PID} // of a record without a start time
	reused := session.Process{PID: self.PID, Start: 1}
	for _, row := range []struct {
		name     string
		target   supervisor.Target
		accepted bool
	}{
		{"the known shim", supervisor.Target{Shim: self}, true},
		{"the known shim, in another control group", supervisor.Target{Shim: self, ControlGroup: other}, true},
		{"not the known shim, in its control group", supervisor.Target{Shim: parent, ControlGroup: group}, false},
		{"not the known shim, with its PID", supervisor.Target{Shim: reused, ControlGroup: group}, false},
		{"only the PID is known, in the control group", supervisor.Target{Shim: pid, ControlGroup: group}, true},
		{"only the PID is known, in another control group", supervisor.Target{Shim: pid, ControlGroup: other}, false},
		{"unknown shim, in the control group", supervisor.Target{ControlGroup: group}, true},
		{"unknown shim, in another control group", supervisor.Target{ControlGroup: other}, false},
		{
			"unknown shim, in a control group whose name only begins with that of the run",
			supervisor.Target{ControlGroup: group[:len(group)-1]}, len(group) == 1,
		},
		{
			"unknown shim, a child of the tmux server, which has moved it",
			supervisor.Target{ControlGroup: other, Tmux: parent}, true,
		},
		{
			"unknown shim, unknown control group",
			supervisor.Target{Unit: "app-corral-command-shop.scope"}, false,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.target.RuntimeDir = t.TempDir()
			listener, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
			require.NoError(t, err)
			defer func() { _ = unix.Close(listener) }()
			require.NoError(t, unix.Bind(listener, &unix.SockaddrUnix{Name: row.target.ShimSocket()}))
			require.NoError(t, unix.Listen(listener, 1))
			fd, shim, err := dialShim(row.target)
			if row.accepted {
				require.NoError(t, err)
				require.NoError(t, unix.Close(fd))
				assert.Equal(t, self, shim)
				return
			}
			var foreign *supervisor.ForeignSocketError
			require.ErrorAs(t, err, &foreign)
			want := supervisor.ForeignSocketError{Path: row.target.ShimSocket(), PID: self.PID, ControlGroup: group}
			assert.Equal(t, want, *foreign)
		})
	}
}
