//go:build e2e

package machine_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed/machine"
)

func TestMachine_OfHostSystem(t *testing.T) {
	testMachine(t, machine.Options{})
}

func TestMachine_OfAnotherDebian(t *testing.T) {
	m := testMachine(t, machine.Options{Root: machine.Debian(t, "trixie")})
	assert.Contains(t, m.Run("systemctl", "--version"), "systemd 257")
	assert.Equal(t, "tmux 3.5a\n", m.Run("tmux", "-V"))
}

func testMachine(t *testing.T, options machine.Options) *machine.Machine {
	t.Helper()
	m := machine.Boot(t, options)
	assert.Equal(t, "running\n", m.Run("systemctl", "is-system-running"))

	alice := m.User("alice")
	assert.Equal(t, "running\n", m.As(alice, "systemctl", "--user", "is-system-running", "--wait"))
	assert.Equal(t, "alice /home/alice\n", m.As(alice, "sh", "-c", "echo $(whoami) $PWD"))
	scope := m.As(alice, "systemd-run", "--user", "--scope", "--quiet", "--unit=animal.scope", "cat", "/proc/self/cgroup")
	assert.Contains(t, scope, "/app.slice/animal.scope\n", "the user's manager may move what the user runs")
	assert.Equal(t, 3, status(m, alice, "sh", "-c", "exit 3"))

	m.As(alice, "sh", "-c", "echo kept >file")
	const bootID = "/proc/sys/kernel/random/boot_id"
	boot := m.Run("cat", bootID)
	m.PowerOff()
	m.Boot()
	assert.NotEqual(t, boot, m.Run("cat", bootID), "it is another boot")
	assert.Equal(t, "kept\n", m.As(alice, "cat", "file"), "what was on the disk is there after a reboot")
	m.User(alice)
	m.As(alice, "sh", "-c", "echo more >>file; systemd-run --user --quiet --unit=long sleep 1000")
	m.Crash()
	m.Boot()
	m.User(alice)
	assert.Equal(t, "kept\nmore\n", m.As(alice, "cat", "file"), "and after a power loss")
	assert.NotZero(t, status(m, alice, "systemctl", "--user", "is-active", "--quiet", "long"), "no process survives one")
	return m
}

func TestInstall_CopiesTree(t *testing.T) {
	destdir := t.TempDir()
	m := machine.Boot(t, machine.Options{})
	require.NoError(t, writeProgram(filepath.Join(destdir, "usr/local/bin/hello"), "#!/bin/sh\necho hello\n"))
	m.Install(destdir)
	assert.Equal(t, "hello\n", m.As(m.User("alice"), "hello"))
	assert.Equal(t, "root root 755", strings.TrimSpace(m.Run("stat", "-c", "%U %G %a", "/usr/local/bin/hello")))
	assert.NoFileExists(t, "/usr/local/bin/hello", "the host's disk is not the machine's")
}

func TestMachines_AreIsolated(t *testing.T) {
	one, two := machine.Boot(t, machine.Options{}), machine.Boot(t, machine.Options{})
	one.Run("touch", "/etc/only-here")
	one.Run("sh", "-c", "sleep 98765 &")
	assert.Equal(t, 1, status(two, "root", "test", "-e", "/etc/only-here"))
	assert.Equal(t, 1, status(two, "root", "pgrep", "-f", "sleep 98765"))
	one.PowerOff()
	assert.Equal(t, "running\n", two.Run("systemctl", "is-system-running"))
}

// status returns the exit status of a command on a machine.
func status(m *machine.Machine, user string, args ...string) int {
	cmd := m.Command(user, args...)
	_ = cmd.Run()
	return cmd.ProcessState.ExitCode()
}

func writeProgram(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o755)
}
