package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLoad_ReadsRepositories(t *testing.T) {
	own := write(t, map[string]string{
		"repositories/shop.repository": "[Match]\nPath=%h/src/shop '/with space'\nPath=/other\n" +
			"[Worktree]\nPorts=2\nPortVariable=PORT\nSetupCommand=npm ci --prefix %h\n" +
			"TeardownCommand='down now'\nSetupTimeoutSec=5\n",
		"repositories/shop.repository.d/more.conf": "[Worktree]\nPorts=3\n",
		"repositories/hidden.repository":           "null",
	})
	vendor := write(t, map[string]string{
		"repositories/shop.repository":   "[Match]\nPath=/not/this\n",
		"repositories/hidden.repository": "[Match]\nPath=/hidden\n",
		"repositories/a.repository":      "[Match]\nPath=/a\n",
	})
	c, warnings, err := Load([]string{own, vendor})
	require.NoError(t, err)
	assert.Empty(t, warnings)
	assert.Equal(t, Repositories{
		{Paths: []string{"/a"}},
		{Paths: []string{"%h/src/shop", "/with space", "/other"}, Ports: 3, PortVariable: "PORT",
			SetupCommand: []string{"npm", "ci", "--prefix", "%h"}, TeardownCommand: []string{"down now"},
			SetupTimeout: 5 * time.Second},
	}, c.Repositories)
}

func TestLoad_ReportsInvalidLinesOfRepositories(t *testing.T) {
	root := write(t, map[string]string{
		"corral.conf": "[Corral]\nPortRange=80-90\nPortRange=30000\nPortRange=2000-1999\n",
		"repositories/a.repository": "[Match]\nPath=relative\nPath=%w\nPath='\n" +
			"[Worktree]\nPorts=101\nPorts=x\nPortVariable=A-B\nPort=1\n[Repository]\n" +
			"[Worktree]\nSetupCommand=\"\"\nTeardownCommand=a %x\nSetupTimeoutSec=0\n",
	})
	c, warnings, err := Load([]string{root})
	require.NoError(t, err)
	assert.Equal(t, Default(), c)
	assert.Equal(t, strings.TrimLeft(`
/corral.conf:2: PortRange=: invalid range of ports "80-90": expected FIRST-LAST, from 1024 to 65535, ignored
/corral.conf:3: PortRange=: invalid range of ports "30000": expected FIRST-LAST, from 1024 to 65535, ignored
/corral.conf:4: PortRange=: invalid range of ports "2000-1999": expected FIRST-LAST, from 1024 to 65535, ignored
/repositories/a.repository:10: unknown section [Repository], ignored
/repositories/a.repository:2: Path=: invalid path "relative": expected an absolute path, ignored
/repositories/a.repository:3: Path=: cannot expand "%w": specifier %w has no value, ignored
/repositories/a.repository:4: Path=: quote ' is not closed, ignored
/repositories/a.repository:6: Ports=: invalid number of ports "101": expected 0 to 100, ignored
/repositories/a.repository:7: Ports=: invalid number of ports "x": expected 0 to 100, ignored
/repositories/a.repository:8: PortVariable=: invalid variable name "A-B", ignored
/repositories/a.repository:9: unknown key Port= in section [Worktree], ignored
/repositories/a.repository:12: SetupCommand=: invalid command "\"\"": expected a program, ignored
/repositories/a.repository:13: TeardownCommand=: unknown specifier "%x", ignored
/repositories/a.repository:14: SetupTimeoutSec=: invalid time span "0": expected more than 0 and less than infinity, ignored
/repositories/a.repository: Path= in section [Match] is missing, ignored
`, "\n"), strings.ReplaceAll(lines(warnings), root, ""))
}

func TestRepositories_AreFoundByResolvedPath(t *testing.T) {
	home := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(home, "shop"), 0o700))
	require.NoError(t, os.Symlink("shop", filepath.Join(home, "link")))
	all := Repositories{
		{Paths: []string{"/no/such/directory"}},
		{Paths: []string{"%h/link"}, Ports: 1},
		{Paths: []string{"%h/shop"}, Ports: 2},
	}
	values := Specifiers{Home: home}
	assert.Equal(t, 1, all.Find(filepath.Join(home, "shop"), values).Ports)
	assert.Equal(t, 1, all.Find(filepath.Join(home, "link"), values).Ports)
	assert.Empty(t, all.Find(home, values))
}
