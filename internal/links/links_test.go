package links

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFollow_VisitsEachFile(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	at := func(name string) string { return filepath.Join(root, name) }
	require.NoError(t, os.MkdirAll(at("versions/2"), 0o700))
	require.NoError(t, os.WriteFile(at("versions/2/tool"), nil, 0o700))
	require.NoError(t, os.Mkdir(at("bin"), 0o700))
	require.NoError(t, os.Symlink("2", at("versions/current")))
	require.NoError(t, os.Symlink("../versions/./current/tool", at("bin/tool")))
	require.NoError(t, os.Symlink(at("bin"), at("path")))
	require.NoError(t, os.Symlink("loop", at("loop")))
	var visited []string
	resolved, err := Follow(at("path/tool"), func(path string, _ fs.FileInfo, isLast bool) error {
		if below, is := strings.CutPrefix(path, root+"/"); is {
			if isLast {
				below += " last"
			}
			visited = append(visited, below)
		}
		return nil
	})
	require.NoError(t, err)
	assert.Equal(t, at("versions/2/tool"), resolved)
	assert.Equal(t, []string{
		"path", "bin", "bin/tool last", "versions", "versions/current", "versions/2", "versions/2/tool last",
	}, visited)

	none := func(string, fs.FileInfo, bool) error { return nil }
	_, err = Follow(at("loop"), none)
	require.ErrorIs(t, err, syscall.ELOOP)
	_, err = Follow(at("missing"), none)
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = Follow(at("bin"), func(string, fs.FileInfo, bool) error { return fs.ErrPermission })
	require.ErrorIs(t, err, fs.ErrPermission)
}
