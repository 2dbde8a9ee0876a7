package claim

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// OwnCgroup returns the directory of this process's cgroup in the cgroup2 hierarchy, wherever that
// is mounted.
func OwnCgroup() (string, error) {
	root, mount, err := cgroup2Mount()
	if err != nil {
		return "", err
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", fmt.Errorf("cannot find the own cgroup: %w", err)
	}
	for line := range strings.Lines(string(own)) {
		if path, found := strings.CutPrefix(strings.TrimSpace(line), "0::"); found {
			return filepath.Join(mount, strings.TrimPrefix(path, strings.TrimSuffix(root, "/"))), nil
		}
	}
	return "", errors.New("cannot find the own cgroup: the kernel has no cgroup2 hierarchy")
}

// cgroup2Mount returns which part of the cgroup2 hierarchy is mounted, and where
// (proc_pid_mountinfo(5), fields 4 and 5). Of several mounts it returns the last one, because a
// mount hides earlier ones below its mount point.
func cgroup2Mount() (root, mount string, err error) {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", "", fmt.Errorf("cannot find the cgroup2 mount: %w", err)
	}
	defer func() { _ = file.Close() }()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		before, after, _ := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(before)
		var found unix.Statfs_t
		if strings.HasPrefix(after, "cgroup2 ") && len(fields) >= 5 && unix.Statfs(fields[4], &found) == nil &&
			found.Type == unix.CGROUP2_SUPER_MAGIC {
			root, mount = fields[3], fields[4]
		}
	}
	if mount == "" {
		return "", "", errors.New("cannot find the cgroup2 mount: " +
			"mount it (mount -t cgroup2 cgroup2 /sys/fs/cgroup), or give the container one (--privileged)")
	}
	return root, mount, nil
}

// MakeCgroup creates the claim's cgroup below this process's, records its path for the sweep, and
// opens it for the start of a process in it (clone(2), CLONE_INTO_CGROUP). The file stays open
// until Release or the next call.
func (c *Claim) MakeCgroup() (*os.File, error) {
	own, err := OwnCgroup()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(own, filepath.Base(c.Dir))
	if err := os.WriteFile(CgroupFile(c.Dir), []byte(dir), 0o600); err != nil {
		return nil, fmt.Errorf("cannot record the cgroup: %w", err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, fmt.Errorf("cannot make a cgroup (in a container, run it with --privileged): %w", err)
	}
	_ = c.cgroup.Close()
	c.cgroup, err = os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	return c.cgroup, err
}

// RemoveCgroup kills all processes in a cgroup and below it, waits until it is empty, and removes
// it. A missing cgroup is not an error.
func RemoveCgroup(dir string) error {
	err := os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0)
	if err == nil {
		err = waitUnpopulated(filepath.Join(dir, "cgroup.events"))
	}
	if err == nil {
		err = removeCgroupTree(dir)
	}
	// ENODEV: it was removed while its file was open.
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot remove cgroup %q: %w", dir, err)
	}
	return nil
}

// killTimeout limits how long processes may take to die of SIGKILL on a busy machine.
const killTimeout = 30 * time.Second

// waitUnpopulated waits until a cgroup.events file contains `populated 0`; the kernel reports each
// change of the file with POLLPRI (cgroup-v2, 2.3).
func waitUnpopulated(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	content := make([]byte, 256)
	for deadline := time.Now().Add(killTimeout); time.Now().Before(deadline); {
		n, err := unix.Pread(int(file.Fd()), content, 0)
		if err != nil {
			return err
		}
		if strings.Contains(string(content[:n]), "populated 0") {
			return nil
		}
		events := []unix.PollFd{{Fd: int32(file.Fd()), Events: unix.POLLPRI}}
		if _, err := unix.Poll(events, int(time.Until(deadline).Milliseconds())+1); err != nil && err != unix.EINTR {
			return err
		}
	}
	return errors.New("its processes do not end")
}

// removeCgroupTree removes the directories of an empty cgroup, the deepest first. Their files
// cannot and need not be removed.
func removeCgroupTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := removeCgroupTree(filepath.Join(dir, entry.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return unix.Rmdir(dir)
}
