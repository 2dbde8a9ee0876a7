package trust

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestApprovals_AreForOneContentOfOneRepository(t *testing.T) {
	a := Approvals(filepath.Join(t.TempDir(), "state", "trusted"))
	s := Script{"/src/shop", Setup, []byte("#!/bin/sh\n")}
	now := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	assert.False(t, a.Has(s))
	require.NoError(t, a.Add(s, now))
	require.NoError(t, a.Add(s, now), "again")
	assert.True(t, a.Has(s))
	for name, other := range map[string]Script{
		"another repository": {"/src/shop2", Setup, s.Content},
		"another script":     {s.Repository, Teardown, s.Content},
		"another content":    {s.Repository, Setup, []byte("#!/bin/sh\n\n")},
	} {
		assert.False(t, a.Has(other), name)
	}
	require.NoError(t, a.Add(Script{"/src/api", Teardown, []byte("x")}, now))
	require.NoError(t, os.WriteFile(filepath.Join(string(a), "damaged"), []byte("{"), 0o600))
	all, err := a.List()
	require.NoError(t, err)
	require.Len(t, all, 2)
	assert.Equal(t, "/src/api", all[0].Repository)
	assert.Equal(t, Approval{
		"/src/shop", Setup, "a8076d3d28d21e02012b20eaf7dbf75409a6277134439025f282e368e3305abf", now.Truncate(time.Second),
	}, all[1])
	n, err := a.Remove("/src/shop")
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	assert.False(t, a.Has(s))
	info, err := os.Stat(string(a))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), info.Mode().Perm())
}

func TestRead_FollowsLinksButBlocksOnNothing(t *testing.T) {
	dir := t.TempDir()
	_, err := Read(dir, dir, Setup)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, os.Mkdir(filepath.Join(dir, ".corral"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "script"), []byte("text"), 0o600))
	require.NoError(t, os.Symlink("../script", filepath.Join(dir, Setup)))
	require.NoError(t, os.Symlink(dir, filepath.Join(dir, "link")))
	s, err := Read(filepath.Join(dir, "link"), dir, Setup)
	require.NoError(t, err)
	resolved, err := filepath.EvalSymlinks(dir)
	require.NoError(t, err)
	assert.Equal(t, Script{resolved, Setup, []byte("text")}, s)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "script"), nil, 0o600))
	_, err = Read(dir, dir, Setup)
	require.ErrorIs(t, err, fs.ErrNotExist, "an empty file disables it")
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, Teardown), 0o600))
	_, err = Read(dir, dir, Teardown)
	require.ErrorContains(t, err, "cannot read .corral/teardown")
}
