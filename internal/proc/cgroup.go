package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

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
	path := ParseCgroup(b)
	if path == nil {
		return "", fmt.Errorf("cannot find the control group of process %d: it is not in a version 2 hierarchy", pid)
	}
	return string(path), nil
}

// ParseCgroup returns the control group in the version 2 hierarchy from the content of
// /proc/PID/cgroup (cgroups(7)), or nil if there is none. The result is a part of b. ParseCgroup
// does not allocate.
func ParseCgroup(b []byte) []byte {
	for len(b) > 0 {
		var line []byte
		line, b, _ = bytes.Cut(b, []byte("\n"))
		path, ok := bytes.CutPrefix(line, []byte("0::"))
		if ok && bytes.HasPrefix(path, []byte("/")) {
			return bytes.TrimSuffix(path, []byte(" (deleted)"))
		}
	}
	return nil
}

// CgroupRoot returns the mount point of the version 2 hierarchy, which is one of the two that
// systemd uses: /sys/fs/cgroup, or /sys/fs/cgroup/unified on a hybrid machine.
func CgroupRoot() (string, error) {
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var fs unix.Statfs_t
		if unix.Statfs(root, &fs) == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC {
			return root, nil
		}
	}
	return "", errors.New("cannot find the cgroup mount point: no version 2 hierarchy is mounted where systemd mounts it")
}

// groupDir returns the directory of a control group. The empty name is an error: joined to the
// mount point, it would denote the root of the hierarchy.
func groupDir(cgroupPath string) (string, error) {
	root, err := CgroupRoot()
	if err != nil {
		return "", err
	}
	if cgroupPath == "" {
		return "", fmt.Errorf("cannot find a control group without a name: %w", os.ErrNotExist)
	}
	// filepath.Clean of an absolute path removes every "..", so that the result is in the hierarchy.
	return filepath.Join(root, filepath.Clean("/"+cgroupPath)), nil
}

// Processes returns the sorted IDs of all processes in a control group and the groups below it,
// including zombies. The path is one that Cgroup or systemd has returned. Processes start and exit
// meanwhile: each ID in the list was present at some time during the call. Errors: fs.ErrNotExist
// if the group does not exist, or if the path is empty, which does not mean the root of the
// hierarchy.
func Processes(cgroupPath string) ([]int, error) {
	dir, err := groupDir(cgroupPath)
	if err != nil {
		return nil, err
	}
	pids, err := processesBelow(dir)
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
	pids, err := parsePIDs(b)
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

// parsePIDs parses a list of process IDs. 0 represents a process of another PID namespace, which
// has no ID here.
func parsePIDs(b []byte) ([]int, error) {
	var pids []int
	for field := range bytes.FieldsSeq(b) {
		pid, err := strconv.Atoi(string(field))
		if err != nil || pid < 0 {
			return nil, fmt.Errorf("invalid process ID %q", field)
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
func IsPopulated(cgroupPath string) bool { return hasEvent(cgroupPath, "populated") }

// IsAllFrozen reports whether all processes of a control group have stopped because it is frozen,
// by itself or with one above it. A group that is being thawed still counts.
func IsAllFrozen(cgroupPath string) bool { return hasEvent(cgroupPath, "frozen") }

func hasEvent(cgroupPath, name string) bool {
	dir, err := groupDir(cgroupPath)
	if err != nil {
		return false
	}
	events, _ := ReadFile(filepath.Join(dir, "cgroup.events"))
	value, _ := FlatKeyed(events, name)
	return value == 1
}
