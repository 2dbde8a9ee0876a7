package atomicfile

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(b)
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var n []string
	for _, e := range entries {
		n = append(n, e.Name())
	}
	return n
}

func TestWrite_ReplacesContent(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	for _, text := range []string{"first, and longer", "second", ""} {
		require.NoError(t, Write(path, []byte(text), 0o640))
		assert.Equal(t, text, content(t, path))
		assert.Equal(t, []string{"file"}, names(t, dir))
	}
	st, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o640), st.Mode())
}

func TestWrite_IgnoresUmask(t *testing.T) {
	old := syscall.Umask(0o777)
	defer syscall.Umask(old)
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, Write(path, nil, 0o664))
	st, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o664), st.Mode())
}

func TestCommit_MakesContentVisible(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	f, err := Create(dir, "file", 0o600)
	require.NoError(t, err)
	require.NoError(t, f.Reserve(64<<10))
	assert.Equal(t, "old", content(t, path))
	require.NoError(t, f.Commit([]byte("new")))
	assert.Equal(t, "new", content(t, path))
	f.Abort()
	assert.Equal(t, "new", content(t, path))
}

func TestAbort_KeepsOldContent(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	f, err := Create(dir, "file", 0o600)
	require.NoError(t, err)
	f.Abort()
	f.Abort()
	assert.Equal(t, "old", content(t, path))
	assert.Equal(t, []string{"file"}, names(t, dir))
}

func TestWrite_ReplacesTemporaryFileOfCrash(t *testing.T) {
	dir := t.TempDir()
	_, err := Create(dir, "file", 0o600)
	require.NoError(t, err)
	require.NoError(t, Write(filepath.Join(dir, "file"), []byte("new"), 0o600))
	assert.Equal(t, []string{"file"}, names(t, dir))
}

func TestWrite_DoesNotFollowLinkAtTemporaryName(t *testing.T) {
	dir := t.TempDir()
	victim := filepath.Join(dir, "victim")
	require.NoError(t, os.WriteFile(victim, []byte("mine"), 0o600))
	require.NoError(t, os.Symlink(victim, filepath.Join(dir, ".file.new")))
	require.NoError(t, Write(filepath.Join(dir, "file"), []byte("new"), 0o600))
	assert.Equal(t, "mine", content(t, victim))
}

func TestWrite_ErrorsNameTheFile(t *testing.T) {
	dir := t.TempDir()
	err := Write(filepath.Join(dir, "no", "file"), nil, 0o600)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, filepath.Join(dir, "no"))

	require.NoError(t, os.Mkdir(filepath.Join(dir, "file"), 0o700))
	// With these, the directory cannot be set aside.
	taken := []string{"file", "file.damaged"}
	for n := 2; n <= maxAside; n++ {
		taken = append(taken, fmt.Sprintf("file.damaged.%d", n))
	}
	for _, name := range taken[1:] {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name, "full"), 0o700))
	}
	err = Write(filepath.Join(dir, "file"), nil, 0o600)
	require.ErrorContains(t, err, "file")
	assert.ElementsMatch(t, taken, names(t, dir))
}

// TestSetAside_KeepsWhatWasSetAsideBefore checks that what was set aside last has the name without
// a number.
func TestSetAside_KeepsWhatWasSetAsideBefore(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	for _, inside := range []string{"oldest", "old"} {
		require.NoError(t, os.MkdirAll(filepath.Join(path, inside), 0o700))
		aside, err := SetAside(path)
		require.NoError(t, err)
		assert.Equal(t, path+".damaged", aside)
	}
	require.NoError(t, os.WriteFile(path, []byte("file"), 0o600)) // cannot replace a directory either
	_, err := SetAside(path)
	require.NoError(t, err)
	assert.Equal(t, "file", content(t, path+".damaged"))
	assert.Equal(t, []string{"oldest"}, names(t, path+".damaged.2"))
	assert.Equal(t, []string{"old"}, names(t, path+".damaged.3"))

	require.NoError(t, os.WriteFile(path, []byte("newer file"), 0o600))
	_, err = SetAside(path)
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"f.damaged", "f.damaged.2", "f.damaged.3"}, names(t, dir), "a file replaces a file")

	_, err = SetAside(path)
	assert.ErrorIs(t, err, os.ErrNotExist)
}

// TestWrite_RenamesDirectoryInItsPlace: a directory is renamed, also at the temporary name;
// everything else is replaced.
func TestWrite_RenamesDirectoryInItsPlace(t *testing.T) {
	for name, write := range map[string]func(path string) error{
		"Commit": func(path string) error { return Write(path, []byte("new"), 0o600) },
		"Replace": func(path string) error {
			f, err := Create(filepath.Dir(path), filepath.Base(path), 0o600)
			require.NoError(t, err)
			require.NoError(t, f.Replace([]byte("new")))
			return f.Sync()
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "f")
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "f/full"), 0o700))
			require.NoError(t, os.MkdirAll(filepath.Join(dir, ".f.new/full"), 0o700))
			require.NoError(t, write(path))
			assert.Equal(t, "new", content(t, path))
			assert.ElementsMatch(t, []string{"f", "f.damaged", ".f.new.damaged"}, names(t, dir))
		})
	}
}

// TestSync_DoesNotBlockOnFIFO: a FIFO may have replaced the file since it was read.
func TestSync_DoesNotBlockOnFIFO(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	require.NoError(t, unix.Mkfifo(path, 0o600))
	err := Sync(path)
	require.ErrorIs(t, err, unix.EINVAL)
	assert.Contains(t, err.Error(), path)
}
