package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Cgroup returns the path of a process's control group in the version 2 hierarchy, as in systemd's
// ControlGroup=: "/user.slice/…". It ignores the version 1 hierarchies of a hybrid machine. For a
// zombie it returns the group in which the process exited, even if that was removed since. Errors:
// fs.ErrNotExist if there is no such process.
func Cgroup(pid int) (string, error) {
	b, err := readProc(pid, "cgroup")
	if err != nil {
		return "", err
	}
	path, err := parseCgroup(b)
	if err != nil {
		return "", fmt.Errorf("cannot find the control group of process %d: %w", pid, err)
	}
	return path, nil
}

// parseCgroup returns the path of the line "0::PATH" of cgroups(7).
func parseCgroup(b []byte) (string, error) {
	for line := range bytes.Lines(b) {
		path, ok := strings.CutPrefix(strings.TrimSuffix(string(line), "\n"), "0::")
		if ok && strings.HasPrefix(path, "/") {
			return strings.TrimSuffix(path, " (deleted)"), nil
		}
	}
	return "", errors.New("it is not in a version 2 hierarchy")
}

// cgroupRoot caches the mount point, which does not change while a process lives. Errors are not
// cached.
var cgroupRoot atomic.Pointer[string]

// CgroupRoot returns the mount point of the version 2 hierarchy: /sys/fs/cgroup, or
// /sys/fs/cgroup/unified on a hybrid machine.
func CgroupRoot() (string, error) {
	if root := cgroupRoot.Load(); root != nil {
		return *root, nil
	}
	b, err := ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", fmt.Errorf("cannot find the cgroup mount point: %w", err)
	}
	root, ok := parseMountinfo(b)
	if !ok {
		return "", errors.New("cannot find the cgroup mount point: no version 2 hierarchy is mounted")
	}
	cgroupRoot.Store(&root)
	return root, nil
}

// parseMountinfo returns the mount point of a cgroup2 file system in proc_pid_mountinfo(5),
// preferably one of the usual mount points.
func parseMountinfo(b []byte) (string, bool) {
	var found []string
	for line := range bytes.Lines(b) {
		mount, fs, ok := strings.Cut(string(line), " - ")
		fields, fsFields := strings.Fields(mount), strings.Fields(fs)
		if ok && len(fields) >= 6 && len(fsFields) >= 1 && fsFields[0] == "cgroup2" {
			found = append(found, unescapeMount(fields[4]))
		}
	}
	for _, usual := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		if slices.Contains(found, usual) {
			return usual, true
		}
	}
	if len(found) == 0 {
		return "", false
	}
	return found[0], true
}

// unescapeMount decodes the kernel's octal escapes in mountinfo, such as \040 for a space.
func unescapeMount(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+4 <= len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// Processes returns the sorted IDs of all processes in a control group and the groups below it,
// including zombies. The path is one that Cgroup or systemd has returned. Processes start and exit
// meanwhile: each ID in the list was present at some time during the call. Errors: fs.ErrNotExist
// if the group does not exist, or if the path is empty, which does not mean the root of the
// hierarchy.
func Processes(cgroupPath string) ([]int, error) {
	root, err := CgroupRoot()
	if err != nil {
		return nil, err
	}
	if cgroupPath == "" {
		return nil, fmt.Errorf("cannot list the processes of a control group without a name: %w", os.ErrNotExist)
	}
	// filepath.Clean of an absolute path removes every "..", so that the result is in the hierarchy.
	pids, err := processesBelow(filepath.Join(root, filepath.Clean("/"+cgroupPath)))
	if err != nil {
		return nil, fmt.Errorf("cannot list the processes of control group %q: %w", cgroupPath, err)
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

func processesBelow(dir string) ([]int, error) {
	b, err := ReadFile(filepath.Join(dir, "cgroup.procs"))
	switch {
	case errors.Is(err, unix.ENODEV): // removed between open and read
		return nil, os.ErrNotExist
	case errors.Is(err, unix.EOPNOTSUPP): // a threaded group: its processes are listed in the group above
		b = nil
	case err != nil:
		return nil, err
	}
	pids, err := parseProcs(b)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		below, err := processesBelow(filepath.Join(dir, e.Name()))
		if err != nil && !errors.Is(err, os.ErrNotExist) { // the group was removed meanwhile
			return nil, err
		}
		pids = append(pids, below...)
	}
	return pids, nil
}

// parseProcs parses cgroup.procs, which has one ID per line. 0 represents a process of another PID
// namespace, which has no ID here.
func parseProcs(b []byte) ([]int, error) {
	var pids []int
	for field := range bytes.FieldsSeq(b) {
		pid, err := strconv.Atoi(string(field))
		if err != nil || pid < 0 {
			return nil, fmt.Errorf("invalid process ID %q in cgroup.procs", field)
		}
		if pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// Frozen reports whether a control group or one above it was frozen, and whether one above it was,
// so that the group cannot be thawed alone. It returns what the kernel was requested to do: the
// processes may need a moment to stop. See cgroup.freeze in the kernel's cgroup-v2 document.
func Frozen(cgroupPath string) (frozen, above bool) {
	root, err := CgroupRoot()
	if err != nil || cgroupPath == "" {
		return false, false
	}
	for dir := filepath.Clean("/" + cgroupPath); dir != "/"; dir = filepath.Dir(dir) {
		requested, err := ReadFile(filepath.Join(root, dir, "cgroup.freeze"))
		if err == nil && bytes.HasPrefix(requested, []byte("1")) {
			frozen = true
			above = above || dir != filepath.Clean("/"+cgroupPath)
		}
	}
	return frozen, above
}

// IsPopulated reports whether a control group or one below it has processes other than zombies. It
// returns false if the group does not exist. See cgroup.events in the kernel's cgroup-v2 document.
func IsPopulated(cgroupPath string) bool {
	root, err := CgroupRoot()
	if err != nil || cgroupPath == "" {
		return false
	}
	events, err := ReadFile(filepath.Join(root, filepath.Clean("/"+cgroupPath), "cgroup.events"))
	return err == nil && bytes.Contains(events, []byte("populated 1"))
}
