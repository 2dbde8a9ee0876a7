package proc

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReadFile_ReadsWholeFile(t *testing.T) {
	for _, size := range []int{0, 1, 511, 512, 513, 100_000} {
		path := filepath.Join(t.TempDir(), "file")
		want := bytes.Repeat([]byte("x"), size)
		require.NoError(t, os.WriteFile(path, want, 0o600))
		got, err := ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, want, got, "%d bytes", size)
	}
	_, err := ReadFile("/proc/self/nothing")
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = ReadFile("/proc")
	require.ErrorContains(t, err, "read /proc: is a directory")
}
