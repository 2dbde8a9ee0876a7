// Package guest runs a script in a user-mode-linux guest, which needs neither virtualization nor
// the host's cgroups: it has all controllers of cgroup v2, so that MemoryMax=, TasksMax= and the
// OOM killer can be tested on any machine. Forks are ten to thirty times slower than on the host:
// guests are for testing behaviour, not performance.
package guest

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/testbed/claim"
)

// T is the part of *testing.T that a guest needs.
type T interface {
	Helper()
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
	Cleanup(func())
}

const (
	// user is the user that runs the script: an ordinary, lingering one with a user manager.
	user = "alice"
	// timeout limits how long a guest may run.
	timeout = 5 * time.Minute
	// resultSize is the size of the disk for the results, which limits how much the script may print.
	resultSize = 16 << 20 // bytes
)

// mainScript runs in the guest as root: it runs the script as the user, in a cgroup from which the
// user's manager may move processes, and writes the script's output and exit status to the third
// disk. It executes the lines that the script writes to /run/guest/root as root, one after the
// other: the script sets the guest's own clock that way.
const mainScript = `#!/bin/bash
systemctl start user@1000.service
terminal=/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/terminal
mkdir "$terminal"
mkfifo -m 600 /run/guest/root
chown 1000 /run/guest/root
while read -r line; do sh -c "$line"; done <>/run/guest/root &
(
	echo "$BASHPID" >"$terminal/cgroup.procs"
	cd /home/` + user + `
	exec setpriv --reuid=1000 --regid=1000 --init-groups env -i HOME=/home/` + user + ` USER=` + user + ` LOGNAME=` + user + ` SHELL=/bin/bash LANG=C.UTF-8 \
		TERM=xterm-256color PATH=/usr/local/bin:/usr/bin:/bin XDG_RUNTIME_DIR=/run/user/1000 DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/1000/bus \
		bash /run/guest/script
) >/run/guest/output 2>&1 </dev/null
echo $? >/run/guest/status
cat /run/guest/output
tar -cf /dev/ubdc -C /run/guest output status
sync
systemctl poweroff --force --force
`

// Run boots a guest, copies files into it (path in the guest: path on the host), runs a shell
// script there as an ordinary user, switches the guest off, and returns the script's output and
// exit status. The files belong to root and keep their permissions.
func Run(t T, files map[string]string, script string) (output string, status int) {
	t.Helper()
	c, err := claim.New()
	if err != nil {
		t.Fatalf("cannot run a guest: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Release(); err != nil {
			t.Logf("guest: %v", err)
		}
	})
	output, status, err = runIn(c, files, script)
	if err != nil {
		console, _ := os.ReadFile(filepath.Join(c.Dir, "console"))
		t.Fatalf("cannot run a guest: %v\nits console:\n%s", err, console)
	}
	return output, status
}

func runIn(c *claim.Claim, files map[string]string, script string) (output string, status int, err error) {
	program, err := kernel()
	if err != nil {
		return "", 0, err
	}
	root, err := disk()
	if err != nil {
		return "", 0, err
	}
	if err := writeFiles(filepath.Join(c.Dir, "files"), files, script); err != nil {
		return "", 0, fmt.Errorf("cannot pack the files: %w", err)
	}
	results := filepath.Join(c.Dir, "results")
	if err := os.WriteFile(results, nil, 0o600); err != nil {
		return "", 0, err
	}
	if err := os.Truncate(results, resultSize); err != nil {
		return "", 0, err
	}
	if err := bootKernel(c, program, root); err != nil {
		return "", 0, err
	}
	return readResults(results)
}

// bootKernel runs the guest's kernel until the guest is off or the timeout expires.
func bootKernel(c *claim.Claim, program, root string) error {
	cgroup, err := c.MakeCgroup()
	if err != nil {
		return err
	}
	console, err := os.Create(filepath.Join(c.Dir, "console"))
	if err != nil {
		return err
	}
	defer func() { _ = console.Close() }()
	// The guest's changes to the first disk go to a copy-on-write file. The other disks contain a tar
	// archive instead of a file system.
	kernel := exec.Command(program, "mem=1G", "uml_dir="+c.Dir, "umid=guest",
		"ubd0="+filepath.Join(c.Dir, "cow")+","+root, "ubd1r="+filepath.Join(c.Dir, "files"),
		"ubd2="+filepath.Join(c.Dir, "results"), "root=/dev/ubda", "rw",
		"con0=null,fd:1", "con=null", "ssl=null", "quiet", "systemd.unit=guest.target",
		"systemd.unified_cgroup_hierarchy=1", "systemd.show_status=0", "panic=-1")
	kernel.Dir = c.Dir
	kernel.SysProcAttr = &unix.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWPID, // its processes on the host exit with it
		UseCgroupFD: true, CgroupFD: int(cgroup.Fd()), Setsid: true, Pdeathsig: unix.SIGKILL,
	}
	ended := make(chan error, 1)
	go func() {
		// The kernel would be killed when the thread that started it exits (prctl(2), PR_SET_PDEATHSIG).
		runtime.LockOSThread()
		ended <- runKernel(kernel, console)
	}()
	select {
	case err := <-ended:
		return err
	case <-time.After(timeout):
		return errors.Join(fmt.Errorf("not done within %v", timeout), claim.RemoveCgroup(cgroup.Name()))
	}
}

// runKernel runs the kernel until the guest is off or panics. A kernel that panics would reboot
// endlessly, so the first panic kills it and is returned as the error.
func runKernel(kernel *exec.Cmd, console io.Writer) error {
	printed, err := kernel.StdoutPipe()
	if err != nil {
		return err
	}
	kernel.Stderr = kernel.Stdout
	if err := kernel.Start(); err != nil {
		return err
	}
	cause, readErr := panicIn(io.TeeReader(printed, console))
	if cause != "" || readErr != nil {
		_ = kernel.Process.Kill() // it may have exited already
	}
	if cause != "" {
		return errors.Join(errors.New(cause), kernel.Wait())
	}
	err = kernel.Wait()
	if exited := new(exec.ExitError); errors.As(err, &exited) { // the results, not the exit status, show success
		err = nil
	}
	return errors.Join(readErr, err)
}

// panicIn reads a guest's console until it ends or the kernel panics. It returns the message of the
// panic with the line before it, in which user-mode-linux prints the cause.
func panicIn(console io.Reader) (cause string, err error) {
	before := ""
	for lines := bufio.NewReader(console); ; {
		line, err := lines.ReadString('\n')
		line = strings.TrimSpace(line)
		if strings.Contains(line, "Kernel panic - not syncing") {
			return fmt.Sprintf("its kernel panicked: %s: %s", before, line), nil
		}
		if errors.Is(err, io.EOF) {
			return "", nil
		}
		if err != nil {
			return "", fmt.Errorf("cannot read its console: %w", err)
		}
		before = line
	}
}

// writeFiles packs the script and the files for the guest into a tar archive.
func writeFiles(path string, files map[string]string, script string) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	pack := tar.NewWriter(file)
	for name, text := range map[string]string{"run/guest/main": mainScript, "run/guest/script": script} {
		if err := pack.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(text))}); err != nil {
			return err
		}
		if _, err := io.WriteString(pack, text); err != nil {
			return err
		}
	}
	for name, source := range files {
		if err := addFile(pack, strings.TrimPrefix(name, "/"), source); err != nil {
			return err
		}
	}
	return pack.Close()
}

func addFile(pack *tar.Writer, name, source string) error {
	file, err := os.Open(source)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if err := pack.WriteHeader(&tar.Header{Name: name, Mode: int64(info.Mode().Perm()), Size: info.Size()}); err != nil {
		return err
	}
	_, err = io.Copy(pack, file)
	return err
}

// readResults unpacks the results. A guest that exited early has left none.
func readResults(path string) (output string, status int, err error) {
	file, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = file.Close() }()
	found := make(map[string]string)
	for unpack := tar.NewReader(file); ; {
		header, err := unpack.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", 0, fmt.Errorf("cannot read the results: %w", err)
		}
		content, err := io.ReadAll(unpack)
		if err != nil {
			return "", 0, fmt.Errorf("cannot read the results: %w", err)
		}
		found[header.Name] = string(content)
	}
	text, complete := found["status"]
	if !complete {
		return "", 0, errors.New("it ended without results")
	}
	status, err = strconv.Atoi(strings.TrimSpace(text))
	return found["output"], status, err
}
