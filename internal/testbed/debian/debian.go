// Package debian creates root directories of Debian systems for machines and guests, with the
// packages that Corral needs, and caches them outside of the repository.
package debian

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// packages are installed in addition to Debian's essential ones.
var packages = []string{"systemd", "systemd-sysv", "dbus", "dbus-user-session", "libpam-systemd", "tmux", "procps"}

// Cache returns the directory for results that take long to create: below $XDG_CACHE_HOME if that
// is set, else one for the whole machine.
func Cache() string {
	if home := os.Getenv("XDG_CACHE_HOME"); home != "" {
		return filepath.Join(home, "corral-testbed")
	}
	return "/var/cache/corral-testbed"
}

// Tree returns the root directory of a Debian system of the given suite (bookworm, trixie, sid),
// with further packages. The first call creates it, which takes a minute and needs network access.
// Callers must not write to it, since it is shared: they mount an overlay over it. Tree needs root.
func Tree(suite string, more ...string) (string, error) {
	if os.Geteuid() != 0 {
		return "", errors.New("cannot make a Debian system: debootstrap needs root")
	}
	if _, err := exec.LookPath("debootstrap"); err != nil {
		return "", errors.New("debootstrap is not installed: apt-get install debootstrap")
	}
	wanted := slices.Concat(packages, more)
	key := sha256.Sum256([]byte(strings.Join(wanted, " ")))
	return Cached(fmt.Sprintf("%s-%x", suite, key[:4]), func(dir string) error { return Bootstrap(suite, dir, wanted) })
}

// Has reports whether the cache contains an entry.
func Has(name string) bool {
	_, err := os.Stat(filepath.Join(Cache(), name))
	return err == nil
}

// Cached returns the path of a cache entry. If it does not exist, build creates it under a
// temporary name, in one process at a time, so that an incomplete entry is never used.
func Cached(name string, build func(path string) error) (string, error) {
	if err := os.MkdirAll(Cache(), 0o755); err != nil {
		return "", fmt.Errorf("cannot make the cache: %w", err)
	}
	began := time.Now()
	path := filepath.Join(Cache(), name)
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return "", fmt.Errorf("cannot lock the cache: %w", err)
	}
	defer func() { _ = lock.Close() }()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", fmt.Errorf("cannot lock the cache: %w", err)
	}
	if Has(name) {
		return path, nil
	}
	Progress("making %s, once", path)
	unfinished := path + ".new"
	if err := os.RemoveAll(unfinished); err != nil {
		return "", fmt.Errorf("cannot clean the cache: %w", err)
	}
	if err := build(unfinished); err != nil {
		return "", errors.Join(err, os.RemoveAll(unfinished))
	}
	if err := os.Rename(unfinished, path); err != nil {
		return "", fmt.Errorf("cannot put %q into the cache: %w", name, err)
	}
	Progress("made %s in %d s", path, int(time.Since(began).Seconds()))
	return path, nil
}

// Progress prints a message on standard error for the person who waits.
func Progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "testbed: "+format+"\n", args...)
}

// progressInterval is the time between two progress messages of one debootstrap or apt-get, which
// themselves print hundreds of lines.
const progressInterval = 10 * time.Second

// Bootstrap installs a Debian system of the given suite in a directory, with the given packages and
// Debian's essential ones. debootstrap verifies them with Debian's archive key. It mounts /proc and
// more in the new root, so it runs in a mount namespace, whose mounts vanish with it.
func Bootstrap(suite, dir string, packages []string) error {
	args := []string{"--variant=minbase", "--include=" + strings.Join(packages, ","), suite, dir}
	if mirror := mirror(); mirror != "" {
		args = append(args, mirror)
	}
	if err := runForLong("debootstrap "+suite, "debootstrap", args...); err != nil {
		return fmt.Errorf("cannot make a Debian system of suite %q: %w", suite, err)
	}
	return nil
}

// runForLong runs a program in a mount namespace of its own, with the machine's apt proxy, and
// prints its progress.
func runForLong(what, program string, args ...string) error {
	cmd := exec.Command(program, args...)
	cmd.SysProcAttr = &unix.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	cmd.Env = append(os.Environ(), proxy()...)
	log := &progressLog{what: what, began: time.Now(), reported: time.Now()}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w\n%s", err, lastLines(log.text.String(), 20))
	}
	return nil
}

// progressLog stores the output of a program and prints its last line at intervals.
type progressLog struct {
	what            string
	began, reported time.Time
	text            strings.Builder
}

func (l *progressLog) Write(p []byte) (int, error) {
	l.text.Write(p)
	if now := time.Now(); now.Sub(l.reported) >= progressInterval {
		l.reported = now
		Progress("%s, %d s: %s", l.what, int(now.Sub(l.began).Seconds()), lastLines(l.text.String(), 1))
	}
	return len(p), nil
}

// mirror returns the mirror that the machine's own apt uses, "" for debootstrap's default.
// CORRAL_TESTBED_MIRROR overrides it, for machines of another distribution.
func mirror() string {
	if set := os.Getenv("CORRAL_TESTBED_MIRROR"); set != "" {
		return set
	}
	output, err := exec.Command("apt-get", "indextargets", "--format", "$(LABEL) $(REPO_URI)",
		"Created-By: Packages").Output()
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(output)) {
		if uri, found := strings.CutPrefix(strings.TrimSpace(line), "Debian "); found {
			return uri
		}
	}
	return ""
}

// proxy returns the machine's apt proxy as an environment variable for debootstrap and apt-get.
func proxy() []string {
	output, err := exec.Command("apt-config", "shell", "PROXY", "Acquire::http::Proxy").Output()
	if err != nil {
		return nil
	}
	_, value, found := strings.Cut(strings.TrimSpace(string(output)), "=")
	if !found {
		return nil
	}
	return []string{"http_proxy=" + strings.Trim(value, "'")}
}

func lastLines(text string, count int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-count):], "\n")
}
