package proc

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestLastInput_IsWhenTheTerminalWasRead writes to a terminal until the kernel updates its time,
// which takes up to eight seconds.
func TestLastInput_IsWhenTheTerminalWasRead(t *testing.T) {
	t.Parallel()
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = terminal.Close() })
	fd := int(terminal.Fd())
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	slave, err := os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)

	begin := time.Now()
	cat := exec.Command("cat")
	cat.Stdin, cat.Stdout = slave, slave
	cat.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, cat.Start())
	require.NoError(t, slave.Close())
	t.Cleanup(func() { _ = cat.Process.Kill(); _ = cat.Wait() })
	assert.Zero(t, LastInput(cat.Process.Pid), "a new terminal")

	var last time.Time
	limit := begin.Add(30 * time.Second)
	for ; last.IsZero() && time.Now().Before(limit); <-time.After(50 * time.Millisecond) {
		_, err := terminal.WriteString("\n")
		require.NoError(t, err)
		last = LastInput(cat.Process.Pid)
	}
	assert.WithinRange(t, last, begin.Add(-time.Second), time.Now())
}

func TestLastRead(t *testing.T) {
	for _, row := range []struct {
		name           string
		access, change syscall.Timespec
		want           time.Time
	}{
		{"a new terminal", syscall.Timespec{Sec: 99, Nsec: 5}, syscall.Timespec{Sec: 99, Nsec: 5}, time.Time{}},
		{"created at a whole second", syscall.Timespec{Sec: 99}, syscall.Timespec{Sec: 99}, time.Time{}},
		{"read", syscall.Timespec{Sec: 104}, syscall.Timespec{Sec: 99, Nsec: 5}, time.Unix(104, 0)},
		{"read, the kernel keeps the nanoseconds", syscall.Timespec{Sec: 104, Nsec: 5},
			syscall.Timespec{Sec: 99, Nsec: 5}, time.Unix(104, 5)},
		{"read, then its mode was changed", syscall.Timespec{Sec: 104},
			syscall.Timespec{Sec: 110, Nsec: 7}, time.Unix(104, 0)},
		{"its mode was changed, never read", syscall.Timespec{Sec: 99, Nsec: 5},
			syscall.Timespec{Sec: 110, Nsec: 7}, time.Time{}},
	} {
		assert.Equal(t, row.want, lastRead(row.access, row.change), row.name)
	}
}

func TestLastInput_IsZeroWithoutTerminal(t *testing.T) {
	assert.Zero(t, LastInput(0), "no process")
	cat := exec.Command("cat")
	cat.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	stdin, err := cat.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cat.Start())
	assert.Zero(t, LastInput(cat.Process.Pid))
	require.NoError(t, stdin.Close())
	require.NoError(t, cat.Wait())
}
