// Package claim reserves resources of the machine for a test: a directory with a short path, a
// cgroup, and a user id without processes. Release frees them; if the owner was killed, the next
// claim does.
package claim

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// prefix is the beginning of the path of each claimed directory. It is short and not below
	// $TMPDIR, because the directory contains sockets, whose paths are limited to 107 bytes:
	// /tmp/corral.599/run/corral/ID/shim.sock has 101 with the longest id.
	prefix = "/tmp/corral."
	// firstUID is the start of a range that systemd's UIDS-GIDS document lists as unused, and that a
	// container with 65,536 users also has.
	firstUID = 60578
	count    = 600
)

// Claim is a reserved directory and, by its number, a user id. It holds a lock on the directory,
// which the kernel releases when the owner dies: a directory that can be locked is abandoned.
type Claim struct {
	Dir    string
	number int
	lock   *os.File
	cgroup *os.File // as MakeCgroup has returned it
}

// New removes what dead owners left, then claims a directory and a user id without processes.
func New() (*Claim, error) {
	sweep()
	busy, err := usersWithProcesses()
	if err != nil {
		return nil, err
	}
	for n := range count {
		if os.Geteuid() == 0 && busy[firstUID+n] {
			continue
		}
		c, err := tryClaim(n)
		if err != nil || c != nil {
			return c, err
		}
	}
	return nil, fmt.Errorf("cannot claim a directory: all of %s0 to %s%d are taken", prefix, prefix, count-1)
}

// tryClaim returns nil without an error if the directory is already claimed.
func tryClaim(n int) (*Claim, error) {
	dir := prefix + strconv.Itoa(n)
	if err := os.Mkdir(dir, 0o755); errors.Is(err, fs.ErrExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("cannot claim a directory: %w", err)
	}
	lock := lockDirectory(dir)
	if lock == nil { // another process has removed it meanwhile
		return nil, nil
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, fmt.Errorf("cannot claim a directory: %w", err)
	}
	return &Claim{Dir: dir, number: n, lock: lock}, nil
}

// lockDirectory locks a claimed directory. It returns nil if the directory belongs to another user,
// does not exist, is locked, or was replaced meanwhile.
func lockDirectory(dir string) *os.File {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	lock := os.NewFile(uintptr(fd), dir)
	var held, found unix.Stat_t
	if unix.Fstat(fd, &held) == nil && mayRelease(int(held.Uid)) && unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) == nil &&
		unix.Lstat(dir, &found) == nil && found.Ino == held.Ino && found.Dev == held.Dev {
		return lock
	}
	_ = lock.Close()
	return nil
}

// mayRelease reports whether this user may remove a directory of the owner. Root may also remove
// those of the user ids that it assigns to tests, which may claim directories, too.
func mayRelease(owner int) bool {
	return owner == os.Geteuid() || os.Geteuid() == 0 && owner >= firstUID && owner < firstUID+count
}

// sweep removes the directories and cgroups whose owners were killed. Directories of other users
// and of running owners are not touched.
func sweep() {
	dirs, _ := filepath.Glob(prefix + "*")
	for _, dir := range dirs {
		n, err := strconv.Atoi(strings.TrimPrefix(dir, prefix))
		if err != nil {
			continue
		}
		if lock := lockDirectory(dir); lock != nil {
			_ = (&Claim{Dir: dir, number: n, lock: lock}).Release()
		}
	}
}

// Release kills what still runs in the claim's cgroup, removes the cgroup and the directory, and
// releases the lock.
func (c *Claim) Release() error {
	defer func() { _, _ = c.cgroup.Close(), c.lock.Close() }()
	if cgroup, err := readOwn(CgroupFile(c.Dir)); err == nil {
		if err := RemoveCgroup(string(cgroup)); err != nil {
			return err
		}
	}
	if err := RemoveTree(c.Dir); err != nil {
		return fmt.Errorf("cannot remove %q: %w", c.Dir, err)
	}
	return nil
}

// UID returns the user id that belongs to the claim.
func (c *Claim) UID() int { return firstUID + c.number }

// CgroupFile returns the path of the file that records the path of a claim's cgroup, for Release
// and for the sweep after a kill.
func CgroupFile(dir string) string { return filepath.Join(dir, "cgroup") }

// readOwn reads a file only if it belongs to this user: otherwise another user could choose which
// cgroup root kills.
func readOwn(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if int(info.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() {
		return nil, fs.ErrPermission
	}
	return io.ReadAll(file)
}

// RemoveTree removes a directory tree that may contain directories without write permission, as
// tests of permissions create them.
func RemoveTree(dir string) error {
	if os.RemoveAll(dir) == nil {
		return nil
	}
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, _ error) error {
		if entry != nil && entry.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}

func usersWithProcesses() (map[int]bool, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("cannot list processes: %w", err)
	}
	busy := make(map[int]bool)
	for _, entry := range entries {
		if _, err := strconv.Atoi(entry.Name()); err != nil {
			continue
		}
		if info, err := entry.Info(); err == nil {
			busy[int(info.Sys().(*syscall.Stat_t).Uid)] = true
		}
	}
	return busy, nil
}
