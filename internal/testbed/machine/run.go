package machine

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// environment contains the variables that a login sets for every user.
var environment = []string{
	"LANG=C.UTF-8", "TERM=xterm-256color", "SHELL=/bin/bash",
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
}

// Run runs a command as root and returns its standard output. The test fails if the command fails.
func (m *Machine) Run(args ...string) string {
	m.t.Helper()
	return m.As("root", args...)
}

// As runs a command as a user, as from that user's terminal, and returns its standard output. The
// test fails if the command fails.
func (m *Machine) As(user string, args ...string) string {
	m.t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := m.Command(user, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = time.Second // limits the wait for output that background processes may still write
	if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		m.t.Fatalf("on the machine, as %s: %s: %v\n%s%s", user, strings.Join(args, " "), err, stdout.String(),
			stderr.String())
	}
	return stdout.String()
}

// Command returns a command that runs on the machine as a user, in the home directory, with the
// environment of a login.
func (m *Machine) Command(user string, args ...string) *exec.Cmd {
	m.t.Helper()
	if m.init == nil {
		m.t.Fatalf("cannot run %q: the machine is switched off", args)
	}
	enter := []string{
		"--target", strconv.Itoa(m.init.Process.Pid), "--mount", "--pid", "--cgroup", "--ipc", "--uts", "--net", "--root",
		"--wd", "--",
	}
	if user == "root" {
		cmd := exec.Command("nsenter", append(enter, args...)...)
		cmd.Env = append([]string{"HOME=/root", "USER=root", "LOGNAME=root"}, environment...)
		m.putIntoTerminal(cmd, "system.slice")
		return cmd
	}
	account, err := m.account(user)
	if err != nil {
		m.t.Fatalf("cannot run %q: %v", args, err)
	}
	enter = append(enter, "setpriv", "--reuid="+account.uid, "--regid="+account.gid, "--init-groups", "--", "env", "-C",
		account.home, "--")
	cmd := exec.Command("nsenter", append(enter, args...)...)
	cmd.Env = append([]string{
		"HOME=" + account.home, "USER=" + user, "LOGNAME=" + user, "XDG_RUNTIME_DIR=/run/user/" + account.uid,
		"DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/" + account.uid + "/bus",
	}, environment...)
	m.putIntoTerminal(cmd, filepath.Join("user.slice", "user-"+account.uid+".slice", "user@"+account.uid+".service"))
	return cmd
}

// putIntoTerminal makes a command start in a cgroup below that of a slice or a user's manager, like
// a program in a terminal: from there, a manager may move processes into its scopes. A user without
// a manager has no such cgroup; the command then stays in the test's.
func (m *Machine) putIntoTerminal(cmd *exec.Cmd, parent string) {
	terminal := filepath.Join(m.claimedCgroup(), parent, "terminal")
	if err := os.Mkdir(terminal, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return
	}
	fd, err := unix.Open(terminal, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	m.t.Cleanup(func() { _ = unix.Close(fd) })
	cmd.SysProcAttr = &unix.SysProcAttr{UseCgroupFD: true, CgroupFD: fd}
}

// Terminal opens a pseudoterminal on the machine and returns its master side, and the name of the
// slave side below /dev there. It is closed after the test. Reading fails with EIO while no process
// has the slave side open.
func (m *Machine) Terminal() (person *os.File, name string) {
	m.t.Helper()
	person, err := os.OpenFile(fmt.Sprintf("/proc/%d/root/dev/pts/ptmx", m.init.Process.Pid),
		os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		m.t.Fatalf("cannot make a terminal: %v", err)
	}
	m.t.Cleanup(func() { _ = person.Close() })
	number := 0
	raw, err := person.SyscallConn()
	if err == nil {
		err = errors.Join(err, raw.Control(func(fd uintptr) {
			if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err == nil {
				number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
			}
		}))
	}
	if err != nil {
		m.t.Fatalf("cannot make a terminal: %v", err)
	}
	return person, fmt.Sprintf("pts/%d", number)
}

// account is an entry of the machine's /etc/passwd.
type account struct{ uid, gid, home string }

func (m *Machine) account(user string) (account, error) {
	passwd, err := os.ReadFile(fmt.Sprintf("/proc/%d/root/etc/passwd", m.init.Process.Pid))
	if err != nil {
		return account{}, err
	}
	for line := range strings.Lines(string(passwd)) {
		if fields := strings.Split(strings.TrimSpace(line), ":"); len(fields) == 7 && fields[0] == user {
			return account{uid: fields[2], gid: fields[3], home: fields[5]}, nil
		}
	}
	return account{}, fmt.Errorf("the machine has no user %q", user)
}

// User creates an ordinary, lingering user unless the name exists, waits until the user's manager
// runs, and returns the name.
func (m *Machine) User(name string) string {
	m.t.Helper()
	if _, err := m.account(name); err != nil {
		m.Run("useradd", "--create-home", "--shell", "/bin/bash", name)
	}
	account, err := m.account(name)
	if err != nil {
		m.t.Fatalf("cannot make user %q: %v", name, err)
	}
	m.Run("loginctl", "enable-linger", name)
	m.Run("systemctl", "start", "user@"+account.uid+".service") // waits for the start that lingering has triggered
	return name
}

// Install copies an installed tree (`make install DESTDIR=`) onto the machine; the files belong to
// root there.
func (m *Machine) Install(destdir string) {
	m.t.Helper()
	pack := exec.Command("tar", "--create", "--directory", destdir, ".")
	unpack := m.Command("root", "tar", "--extract", "--directory", "/", "--no-same-owner", "--no-overwrite-dir",
		"--keep-directory-symlink")
	pipe, err := pack.StdoutPipe()
	if err != nil {
		m.t.Fatalf("cannot install %q: %v", destdir, err)
	}
	unpack.Stdin = pipe
	var packing, unpacking bytes.Buffer
	pack.Stderr, unpack.Stderr = &packing, &unpacking
	if err := errors.Join(pack.Start(), unpack.Run(), pack.Wait()); err != nil {
		m.t.Fatalf("cannot install %q: %v\n%s%s", destdir, err, packing.String(), unpacking.String())
	}
	m.Run("systemctl", "daemon-reload")
}
