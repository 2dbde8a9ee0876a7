package workspaces

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/supervisor/session"
)

func TestDirectory_IsSame(t *testing.T) {
	a, b := session.Inode{Device: 1, Number: 1}, session.Inode{Device: 1, Number: 2}
	for name, row := range map[string]struct {
		a, b Directory
		same bool
	}{
		"same path and inode":              {Directory{"/a", a}, Directory{"/a", a}, true},
		"renamed":                          {Directory{"/a", a}, Directory{"/b", a}, true},
		"moved away, another in its place": {Directory{"/a", a}, Directory{"/a", b}, true},
		"unknown inodes":                   {Directory{Path: "/a"}, Directory{Path: "/b"}, false},
		"one unknown inode":                {Directory{"/a", a}, Directory{Path: "/b"}, false},
		"different":                        {Directory{"/a", a}, Directory{"/b", b}, false},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, row.same, row.a.IsSame(row.b))
			assert.Equal(t, row.same, row.b.IsSame(row.a))
		})
	}
}

func TestDirectory_OfARun(t *testing.T) {
	last, next := session.Inode{Device: 1, Number: 1}, session.Inode{Device: 1, Number: 2}
	current := &session.Session{WorkingDirectory: "/link", Workspace: "/dir", WorkspaceInode: last}
	old := &session.Session{WorkingDirectory: "/link"}
	assert.Equal(t, Directory{"/dir", last}, LastDirectory(current))
	assert.Equal(t, Directory{Path: "/link"}, LastDirectory(old))
	assert.Equal(t, Directory{Path: "/dir"}, NextDirectory(current, nil))
	assert.Equal(t, Directory{Path: "/dir"}, NextDirectory(current, &Resolution{err: os.ErrNotExist}))
	assert.Equal(t, Directory{"/new", next}, NextDirectory(current, &Resolution{dir: Directory{"/new", next}}))
}

func TestResolve_FollowsLinks(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	file, link, missing := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "missing")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Symlink(dir, link))
	assert.Equal(t, dir, Resolve(link))
	assert.Equal(t, missing, Resolve(missing+"/."), "cleaned")
	assert.NotZero(t, InodeOf(dir))
	assert.Equal(t, InodeOf(dir), InodeOf(link))
	assert.Zero(t, InodeOf(file))
	assert.Zero(t, InodeOf(missing))
}
