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

func TestCgroup_OfRunningProcess(t *testing.T) {
	ours, err := Cgroup(os.Getpid())
	require.NoError(t, err)
	child := start(t, "/bin/cat")
	theirs, err := Cgroup(child.Process.Pid)
	require.NoError(t, err)
	assert.Equal(t, ours, theirs, "a child begins in its parent's group")

	pids, err := Processes(ours)
	require.NoError(t, err)
	assert.Contains(t, pids, os.Getpid())
	assert.Contains(t, pids, child.Process.Pid)
	assert.IsIncreasing(t, pids)
}

func TestCgroup_OfMissingProcess(t *testing.T) {
	_, err := Cgroup(1 << 30)
	assert.ErrorIs(t, err, fs.ErrNotExist)
}

func TestProcesses_OfMissingGroup(t *testing.T) {
	_, err := Processes("/no-such-group-" + filepath.Base(t.TempDir()))
	require.ErrorIs(t, err, fs.ErrNotExist)
	assert.ErrorContains(t, err, "no-such-group")
}

func TestProcesses_EmptyNameIsNotTheRoot(t *testing.T) {
	_, err := Processes("")
	require.ErrorIs(t, err, fs.ErrNotExist)
	assert.False(t, IsPopulated(""))
}

func TestProcesses_StaysInTheHierarchy(t *testing.T) {
	_, err := Processes("/../../../etc")
	assert.ErrorIs(t, err, fs.ErrNotExist)
}

func TestCgroupRoot_IsHierarchy(t *testing.T) {
	root, err := CgroupRoot()
	require.NoError(t, err)
	assert.FileExists(t, filepath.Join(root, "cgroup.procs"))
	mounts, err := ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	assert.Regexp(t, " "+root+" [^\n]* - cgroup2 ", string(mounts))
}

func TestProcesses_IncludesGroupsBelow(t *testing.T) {
	root := t.TempDir()
	for dir, procs := range map[string]string{".": "30\n10\n", "pane": "20\n0\n", "pane/deep": "40\n10\n", "empty": ""} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(root, dir, "cgroup.procs"), []byte(procs), 0o600))
	}
	require.NoError(t, os.Mkdir(filepath.Join(root, "going"), 0o700), "a group whose files are gone already")
	pids, err := processesBelow(root)
	require.NoError(t, err)
	assert.ElementsMatch(t, []int{10, 10, 20, 30, 40}, pids)
}

func TestParseCgroup(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"version 2 alone":             {"0::/user.slice/a.scope\n", "/user.slice/a.scope"},
		"hybrid":                      {"9:name=systemd:/x\n4:memory:/y\n0::/z\n", "/z"},
		"the root":                    {"0::/\n", "/"},
		"colons and spaces in a name": {"0::/a:b c\n", "/a:b c"},
		"removed since":               {"0::/a.scope (deleted)\n", "/a.scope"},
		"outside of our namespace":    {"0::/../b.scope\n", "/../b.scope"},
		"no last newline":             {"0::/a", "/a"},
		"version 1 alone":             {"4:memory:/y\n10::/y\n", ""},
		"nothing":                     {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := ParseCgroup([]byte(c.text))
			assert.Equal(t, c.want, string(path))
			assert.Equal(t, c.want == "", path == nil)
		})
	}
}

func FuzzParseCgroupFiles(f *testing.F) {
	f.Add([]byte("9:name=systemd:/x\n0::/z\n"))
	f.Add([]byte("1\n0\n22\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := ParseCgroup(b)
		if path != nil && (path[0] != '/' || bytes.Contains(path, []byte("\n")) || !bytes.Contains(b, path)) {
			t.Fatalf("%q is not a path", path)
		}
		if pids, err := parsePIDs(b); err == nil {
			for _, pid := range pids {
				if pid < 1 {
					t.Fatalf("%d is not a process ID", pid)
				}
			}
		}
	})
}
