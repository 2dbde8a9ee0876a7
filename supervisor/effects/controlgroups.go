package effects

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/proc"
)

// controlGroups implements supervisor.ControlGroups.
type controlGroups struct{ root string } // mount point of the hierarchy

// IsPopulated implements supervisor.ControlGroups.
func (controlGroups) IsPopulated(group string) bool { return proc.IsPopulated(group) }

// dyingTime bounds how long the processes of a control group may take to exit after they were
// killed, one after the other.
const dyingTime = 250 * time.Millisecond

// StaysPopulated implements supervisor.ControlGroups. It waits up to dyingTime for the control
// group to be empty. The kernel reports each change of cgroup.events by POLLPRI, and zombies do not
// count (Documentation/admin-guide/cgroup-v2.rst).
func (c controlGroups) StaysPopulated(group string) bool {
	events, err := os.Open(c.EventsFile(group)) //nolint:forbidigo // a file of the kernel
	if err != nil {
		return false
	}
	defer func() { _ = events.Close() }()
	text := make([]byte, 256)
	for deadline := time.Now().Add(dyingTime); ; {
		n, err := events.ReadAt(text, 0)
		populated, _ := proc.FlatKeyed(text[:n], "populated")
		if populated == 0 || err != nil && !errors.Is(err, io.EOF) {
			return false
		}
		left := time.Until(deadline)
		if left <= 0 {
			return true
		}
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(events.Fd()), Events: unix.POLLPRI}}, int(left.Milliseconds())+1)
	}
}

// IsFrozen implements supervisor.ControlGroups. Of most groups, cgroup.events shows that they are
// not frozen, and the groups above them need not be read.
func (controlGroups) IsFrozen(group string) bool {
	if !proc.IsAllFrozen(group) {
		return false
	}
	frozen, _ := proc.Frozen(group)
	return frozen
}

// EventsFile implements supervisor.ControlGroups.
func (c controlGroups) EventsFile(group string) string { return c.file(group, "cgroup.events") }

// Usage implements supervisor.ControlGroups.
func (controlGroups) Usage(group string) (proc.Usage, bool) { return proc.ReadUsage(group) }

// write writes to a file of a control group.
func (c controlGroups) write(group, name, text string) error {
	return os.WriteFile(c.file(group, name), []byte(text), 0) //nolint:forbidigo // a file of the kernel
}

// file returns the path of a control group's file, "" for a run that has no control group yet:
// joined to the mount point, an empty name would denote the root of the hierarchy.
func (c controlGroups) file(group, name string) string {
	if group = filepath.Clean("/" + group); group == "/" {
		return ""
	}
	return filepath.Join(c.root, group, name)
}
