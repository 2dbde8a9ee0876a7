// Package machine boots a temporary Linux machine for a test: systemd runs as the first process of
// its own namespaces, so that logind, user managers, lingering, reboot and poweroff are real.
// Booting takes a second and needs root.
//
// The machine's disk is an overlay over a root directory, the host's own or that of another system.
// Changes survive PowerOff and Crash and are there after the next Boot; they are removed with the
// test. The machine shares the host's kernel. It has a network interface, besides its own loopback,
// if it belongs to a Network.
package machine

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/testbed/claim"
	"github.com/corrald/corral/internal/testbed/debian"
	"github.com/corrald/corral/internal/testbed/ready"
)

// T is the part of *testing.T that a machine needs.
type T interface {
	Helper()
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
	Failed() bool
	Cleanup(func())
}

// Options are the options of a machine.
type Options struct {
	// Root is the lower layer of the machine's disk: "" or "/" for the host's own system, or a
	// directory that Debian or DebianWithApt has returned.
	Root string
	// Network connects the machine with others, which know it by its Name: its hostname, of at most
	// 15 characters. Nil for a machine without a network.
	Network *Network
	Name    string
	// Share is a directory of the host that the machine has as /srv, so that machines with the same
	// one share files, as those of a file server. "" for none.
	Share string
}

// Machine is a machine, running or switched off.
type Machine struct {
	t     T
	root  string
	share string
	claim *claim.Claim
	disk  *exec.Cmd // keeps the mount namespace that has the disk
	init  *exec.Cmd // the machine's first process, nil while it is switched off
	ended chan struct{}

	network *Network // nil for none
	name    string   // in the network
	number  int      // in the network
	port    []string // to what the machine's port is attached, as words of ip-link(8)
}

// timeout limits how long a machine may take to boot or to power off.
const timeout = time.Minute

// Debian returns the root directory of a Debian system for Options, with further packages. It is
// created on first use and cached.
func Debian(t T, suite string, packages ...string) string {
	t.Helper()
	tree, err := debian.Tree(suite, packages...)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return tree
}

// DebianWithApt returns the root directory of a Debian system for Options on which apt has
// installed further packages; see debian.WithAptPackages.
func DebianWithApt(t T, suite string, packages ...string) string {
	t.Helper()
	tree, err := debian.WithAptPackages(suite, packages...)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return tree
}

// Boot creates a machine and boots it. It is removed after the test; if the test failed, its
// journal and console are logged.
func Boot(t T, options Options) *Machine {
	t.Helper()
	m, err := newMachine(t, options)
	if err != nil {
		t.Fatalf("cannot make a machine: %v", err)
	}
	t.Cleanup(m.destroy)
	m.Boot()
	return m
}

func newMachine(t T, options Options) (*Machine, error) {
	if err := needRoot(); err != nil {
		return nil, err
	}
	m := &Machine{
		t: t, root: options.Root, share: options.Share,
		network: options.Network, name: options.Name, port: []string{"master", "lan"},
	}
	if m.root == "" {
		m.root = "/"
	}
	if _, err := os.Stat(filepath.Join(m.root, "usr/lib/systemd/systemd")); err != nil {
		return nil, fmt.Errorf("no systemd in %q: apt-get install systemd systemd-sysv dbus-user-session libpam-systemd",
			m.root)
	}
	var err error
	if m.network != nil {
		if m.number, err = m.network.join(m.name); err != nil {
			return nil, err
		}
	}
	if m.claim, err = claim.New(); err != nil {
		return nil, err
	}
	if err = m.insertDisk(); err != nil {
		_ = m.claim.Release()
		return nil, err
	}
	return m, nil
}

// insertDisk mounts the disk in a mount namespace that a helper process keeps alive. It is a tmpfs,
// because an overlay cannot write to another overlay. Nothing is mounted on the host, and the disk
// exists as long as the process.
func (m *Machine) insertDisk() error {
	for _, name := range []string{"disk", "root", "host"} {
		if err := os.Mkdir(filepath.Join(m.claim.Dir, name), 0o755); err != nil {
			return err
		}
	}
	m.disk = exec.Command("sh", "-ec",
		"mount -t tmpfs -o mode=755 tmpfs disk; mkdir disk/upper disk/work; echo; exec sleep infinity")
	m.disk.Dir = m.claim.Dir
	if err := startKeeper(m.disk, unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("cannot mount its disk: %w", err)
	}
	return nil
}

// startKeeper starts a process that keeps new namespaces, for as long as this process lives, and
// waits until it prints that it has set them up.
func startKeeper(cmd *exec.Cmd, namespaces uintptr) error {
	cmd.SysProcAttr = &unix.SysProcAttr{Unshareflags: namespaces, Pdeathsig: unix.SIGKILL}
	cmd.Stderr = os.Stderr
	prepared, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := startForLife(cmd, nil); err != nil {
		return err
	}
	_, err = prepared.Read(make([]byte, 1))
	return err
}

func needRoot() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("it needs root; run the tests of this package as root")
	}
	return nil
}

// bootScript runs as the machine's first process, and startScript executes systemd at its end. Its
// arguments are the root directory, the claimed directory and the shared directory, if any,
// followed by those of connectScript, which runs in between if the machine has a network. The
// machine has the devices of a container and none of the host's, and may not change the kernel or
// the clock. It boots machine.target, which starts what a user's session needs and not what the
// host's administrator has enabled. Its root is not that of a chroot(2), where the kernel permits
// no user namespaces; and it has a second, complete /proc, without which the kernel permits none in
// a PID namespace of a user (mount_namespaces(7)).
const bootScript = `
cd "$2"
mount -t overlay overlay -o lowerdir="$1",upperdir=disk/upper,workdir=disk/work root
cd root
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs dev
for device in null zero full random urandom tty; do
	: >dev/$device
	mount --bind /dev/$device dev/$device
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,mode=620,ptmxmode=666,gid=5 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mkdir -p run/host/testbed run/host/proc run/systemd/system
mount -t proc proc run/host/proc
mount --bind "$2/host" run/host/testbed
[ -z "$3" ] || mount --bind "$3" srv
cat proc/sys/kernel/random/uuid >run/host/boot_id
mount --bind run/host/boot_id proc/sys/kernel/random/boot_id
cat >run/systemd/system/machine.target <<UNIT
[Unit]
Description=A machine of the test bed
Requires=sysinit.target
Wants=dbus.socket dbus.service systemd-logind.service systemd-user-sessions.service
After=sysinit.target dbus.socket dbus.service systemd-logind.service systemd-user-sessions.service
AllowIsolate=yes
UNIT
`

const startScript = `
pivot_root . .
umount --lazy --no-canonicalize .
exec env -i container=corral NOTIFY_SOCKET=/run/host/testbed/notify PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
	setpriv --bounding-set=-sys_module,-sys_time,-sys_rawio,-syslog -- \
	/usr/lib/systemd/systemd --system --unit=machine.target --log-target=journal
`

// Boot switches on a machine that is off, and waits until the boot has finished.
func (m *Machine) Boot() {
	m.t.Helper()
	if m.init != nil {
		m.t.Fatalf("cannot boot the machine: it is running")
	}
	if err := m.boot(); err != nil {
		m.t.Fatalf("cannot boot the machine: %v\n%s", err, m.console())
	}
}

func (m *Machine) boot() error {
	cgroup, err := m.claim.MakeCgroup()
	if err != nil {
		return err
	}
	console, err := os.OpenFile(m.consolePath(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = console.Close() }()
	notified, err := ready.Listen(filepath.Join(m.claim.Dir, "host", "notify"))
	if err != nil {
		return err
	}
	script, arguments := bootScript+startScript, []string{m.root, m.claim.Dir, m.share}
	if n := m.network; n != nil {
		script = bootScript + connectScript + startScript
		arguments = append(arguments, m.name, n.namespace(), strconv.Itoa(m.number), strings.Join(m.port, " "), n.hosts())
	}
	m.init = exec.Command("nsenter", slices.Concat([]string{
		fmt.Sprintf("--mount=/proc/%d/ns/mnt", m.disk.Process.Pid), "--", "unshare",
		"--mount", "--cgroup", "--uts", "--ipc", "--net", "--", "sh", "-ec", script, "sh",
	}, arguments)...)
	m.init.Stdout, m.init.Stderr = console, console
	m.init.SysProcAttr = &unix.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID, UseCgroupFD: true, CgroupFD: int(cgroup.Fd()), Setsid: true, Pdeathsig: unix.SIGKILL,
	}
	m.ended = make(chan struct{})
	if err := startForLife(m.init, m.ended); err != nil {
		m.init = nil
		return err
	}
	select {
	case err := <-notified:
		return err
	case <-m.ended:
		return fmt.Errorf("its systemd ended (%v)", m.init.ProcessState)
	case <-time.After(timeout):
		return fmt.Errorf("not up within %v", timeout)
	}
}

// claimedCgroup returns the path of a running machine's cgroup.
func (m *Machine) claimedCgroup() string {
	path, _ := os.ReadFile(claim.CgroupFile(m.claim.Dir))
	return string(path)
}

// startForLife starts a command that the kernel kills when this process dies. The kernel watches
// the thread that started the command (prctl(2), PR_SET_PDEATHSIG), so that thread waits until the
// command has exited. Then ended is closed.
func startForLife(cmd *exec.Cmd, ended chan<- struct{}) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread exits with this goroutine
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		_, _ = cmd.Process.Wait()
		if ended != nil {
			close(ended)
		}
	}()
	return <-started
}

// PowerOff shuts the machine down cleanly and waits until it is off.
func (m *Machine) PowerOff() {
	m.t.Helper()
	cmd := m.Command("root", "systemctl", "poweroff")
	output, err := cmd.CombinedOutput()
	select {
	case <-m.ended:
	case <-time.After(timeout):
		m.t.Fatalf("the machine did not power off within %v (%v)\n%s%s", timeout, err, output, m.journal())
	}
	m.off()
}

// Crash simulates a power loss: all processes of the machine die at once.
func (m *Machine) Crash() {
	m.t.Helper()
	if m.init == nil {
		m.t.Fatalf("cannot crash the machine: it is switched off")
	}
	m.unplug() // first: the kernel closes the connections of processes that die, which a power loss does not
	_ = unix.Kill(m.init.Process.Pid, unix.SIGKILL)
	<-m.ended
	m.off()
}

// off removes the cgroup of a machine that is off. Like that of a host's manager, it exists only
// while the machine runs.
func (m *Machine) off() {
	m.init = nil
	m.unplug()
	if err := claim.RemoveCgroup(m.claimedCgroup()); err != nil {
		m.t.Logf("machine: %v", err)
	}
}

func (m *Machine) destroy() {
	if m.t.Failed() {
		m.t.Logf("machine: its console and the end of its journal:\n%s\n%s", m.console(), m.journal())
	}
	if m.init != nil {
		m.Crash()
	}
	_ = m.disk.Process.Kill()
	if err := m.claim.Release(); err != nil {
		m.t.Logf("machine: %v", err)
	}
}

func (m *Machine) consolePath() string { return filepath.Join(m.claim.Dir, "console.log") }

func (m *Machine) console() string {
	text, _ := os.ReadFile(m.consolePath())
	return strings.TrimSpace(string(text))
}

func (m *Machine) journal() string {
	if m.init == nil {
		return "(the machine is switched off)"
	}
	text, _ := m.Command("root", "journalctl", "--boot", "--no-pager", "--lines=200").CombinedOutput()
	return strings.TrimSpace(string(text))
}
