package safefile

import (
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const maxSize = 1 << 10

// TestRead_RejectsNonRegularFiles: the error describes the file. In no row is there another process
// that could be waited for.
func TestRead_RejectsNonRegularFiles(t *testing.T) {
	for _, row := range []struct {
		name       string
		put        func(t *testing.T, path string)
		is, linked error  // errors of Read and ReadLinked
		message    string // of Read
	}{
		{"a file", func(t *testing.T, path string) { write(t, path, "text") }, nil, nil, ""},
		{"an empty file", func(t *testing.T, path string) { write(t, path, "") }, nil, nil, ""},
		{"a file of the maximum size",
			func(t *testing.T, path string) { write(t, path, strings.Repeat("x", maxSize)) }, nil, nil, ""},
		{"a file that is one byte too large",
			func(t *testing.T, path string) { write(t, path, strings.Repeat("x", maxSize+1)) },
			ErrTooLarge, ErrTooLarge, "is larger than 1024 bytes, expected a smaller file"},
		{"a sparse file of 1 GiB",
			func(t *testing.T, path string) { write(t, path, ""); require.NoError(t, os.Truncate(path, 1<<30)) },
			ErrTooLarge, ErrTooLarge, "is larger than 1024 bytes, expected a smaller file"},
		{"nothing", func(*testing.T, string) {}, fs.ErrNotExist, fs.ErrNotExist, ": no such file or directory"},
		{"a FIFO", func(t *testing.T, path string) { require.NoError(t, unix.Mkfifo(path, 0o600)) },
			ErrNotRegular, ErrNotRegular, "is a FIFO, expected a regular file"},
		{"a directory", func(t *testing.T, path string) { require.NoError(t, os.Mkdir(path, 0o700)) },
			ErrNotRegular, ErrNotRegular, "is a directory, expected a regular file"},
		{"a socket", listen, ErrNotRegular, ErrNotRegular, "is a socket, expected a regular file"},
		{"a link to a file", func(t *testing.T, path string) { write(t, path+".1", "text"); link(t, path+".1", path) },
			ErrNotRegular, nil, "is a symbolic link, expected a regular file"},
		{"a link to nothing", func(t *testing.T, path string) { link(t, path+".1", path) },
			ErrNotRegular, fs.ErrNotExist, "is a symbolic link, expected a regular file"},
		{"a link to itself", func(t *testing.T, path string) { link(t, path, path) },
			ErrNotRegular, unix.ELOOP, "is a symbolic link, expected a regular file"},
		{"a link to a device without an end", func(t *testing.T, path string) { link(t, "/dev/zero", path) },
			ErrNotRegular, ErrNotRegular, "is a symbolic link, expected a regular file"},
		{"a link to /dev/null", func(t *testing.T, path string) { link(t, "/dev/null", path) },
			ErrNotRegular, nil, "is a symbolic link, expected a regular file"},
		{"a link to a FIFO", func(t *testing.T, path string) {
			require.NoError(t, unix.Mkfifo(path+".1", 0o600))
			link(t, path+".1", path)
		},
			ErrNotRegular, ErrNotRegular, "is a symbolic link, expected a regular file"},
	} {
		t.Run(row.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f")
			row.put(t, path)
			text, err := Read(path, maxSize)
			linked, linkedErr := ReadLinked(path, maxSize)
			if row.is == nil {
				require.NoError(t, err)
				want, err := os.ReadFile(path)
				require.NoError(t, err)
				assert.Equal(t, want, text)
			} else {
				require.ErrorIs(t, err, row.is)
				assert.Contains(t, err.Error(), path)
				assert.Contains(t, err.Error(), row.message)
			}
			if row.linked == nil {
				require.NoError(t, linkedErr)
				want, err := os.ReadFile(path)
				require.NoError(t, err)
				assert.Equal(t, string(want), string(linked))
			} else {
				require.ErrorIs(t, linkedErr, row.linked)
			}
		})
	}
}

// TestOpen_DescriptorBlocks: the descriptor, which may be passed to a client of the daemon, is in
// blocking mode like one from os.Open.
func TestOpen_DescriptorBlocks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, "text")
	for name, open := range map[string]func(string) (*os.File, error){"Open": Open, "OpenLinked": OpenLinked} {
		f, err := open(path)
		require.NoError(t, err, name)
		flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
		require.NoError(t, err, name)
		assert.Zero(t, flags&unix.O_NONBLOCK, name)
		text, err := io.ReadAll(f)
		require.NoError(t, err, name)
		assert.Equal(t, "text", string(text), name)
		require.NoError(t, f.Close(), name)
	}
}

// TestOpenFile_DoesNotFollowLinks: OpenFile does not create a file through a link, and does not
// wait for the reader of a FIFO.
func TestOpenFile_DoesNotFollowLinks(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "f"), filepath.Join(dir, "other")
	link(t, other, path)
	_, err := OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	require.ErrorIs(t, err, ErrNotRegular)
	assert.NoFileExists(t, other)
	require.NoError(t, os.Remove(path))
	require.NoError(t, unix.Mkfifo(path, 0o600))
	_, err = OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	require.ErrorIs(t, err, ErrNotRegular)
}

func TestCheckFile_NamesTheOwner(t *testing.T) {
	other := &unix.Stat_t{Mode: unix.S_IFREG, Uid: 1001}
	err := checkFile("/f", other, true, 1000)
	require.ErrorIs(t, err, ErrOwner)
	require.EqualError(t, err, "/f is a file of the user with the id 1001, expected a file of this user or of root")
	require.NoError(t, checkFile("/f", other, false, 1000))
	require.NoError(t, checkFile("/f", other, true, 1001))
	require.NoError(t, checkFile("/f", other, true, 0))
	require.NoError(t, checkFile("/f", &unix.Stat_t{Mode: unix.S_IFREG}, true, 1000))
}

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

func link(t *testing.T, to, path string) {
	t.Helper()
	require.NoError(t, os.Symlink(to, path))
}

func listen(t *testing.T, path string) {
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
}
