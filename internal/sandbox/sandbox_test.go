package sandbox

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// place is a home directory with a workspace in it.
type place struct {
	t *testing.T
	Request
}

func newPlace(t *testing.T) *place {
	t.Helper()
	home, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	p := &place{t: t, Request: Request{
		Workspace: home + "/work", Network: true, Home: home, Runtime: home + "/run",
		PrivateDir: home + "/.cache/private",
	}}
	for _, dir := range []string{"work", "run", ".cache"} {
		require.NoError(t, os.Mkdir(p.at(dir), 0o700))
	}
	return p
}

// at returns a path below the home directory.
func (p *place) at(name string) string { return filepath.Join(p.Home, name) }

func (p *place) write(name, text string) {
	p.t.Helper()
	require.NoError(p.t, os.MkdirAll(filepath.Dir(p.at(name)), 0o700))
	require.NoError(p.t, os.WriteFile(p.at(name), []byte(text), 0o600))
}

func (p *place) git(dir string, args ...string) {
	p.t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=x", "-c", "user.email=x@example.org",
		"-c", "protocol.file.allow=always"}, args...)...)
	cmd.Dir, cmd.Env = p.at(dir), []string{"HOME=" + p.Home, "PATH=" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	require.NoError(p.t, err, "git %q: %s", args, out)
}

// run runs a shell script in the sandbox, and returns what it prints.
func (p *place) run(script string) string {
	p.t.Helper()
	command, err := NewCommand(p.Request)
	require.NoError(p.t, err)
	args := append(command.Args, "/bin/bash", "-c", script)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = []string{
		"HOME=" + p.Home, "XDG_RUNTIME_DIR=" + p.Runtime, "PATH=" + os.Getenv("PATH"),
		"GIT_AUTHOR_NAME=x", "GIT_AUTHOR_EMAIL=x@x", "GIT_COMMITTER_NAME=x", "GIT_COMMITTER_EMAIL=x@x",
	}
	out, err := cmd.CombinedOutput()
	require.NoError(p.t, err, string(out))
	return string(out)
}

// TestView_KindsOfPaths: the longest path applies, and nothing below a hidden one is visible.
func TestView_KindsOfPaths(t *testing.T) {
	p := newPlace(t)
	p.write("work/file", "")
	p.write("work/secret", "s")
	p.write(".ssh/id", "key")
	p.write(".state/log", "")
	p.write(".state/settings", "mine")
	p.write(".state/keys/key", "key")
	p.write(".cache/tool/blob", "real")
	p.write(".bashrc", "mine")
	require.NoError(t, os.Symlink(p.at(".state"), p.at("link")))
	p.Writable = []string{p.at("link") + "/", p.at("new") + "/", p.at("missing")}
	p.ReadOnly = []string{p.at(".state/settings")}
	p.Hide = []string{p.at(".s*h"), p.at("work/secret"), p.at(".state/keys"), p.at("absent")}
	p.Private = []string{p.at(".cache") + "/"}
	require.NoError(t, os.MkdirAll("/tmp/corral-sandbox-test", 0o700))
	t.Cleanup(func() { _ = os.Remove("/tmp/corral-sandbox-test") })

	script := `exec 2>/dev/null
		try() { if "${@:2}"; then echo "$1: yes"; else echo "$1: no"; fi; }
		put() { echo x >>"$1"; }
		try 'write to the workspace' put ` + p.at("work/file") + `
		try 'write to the home directory' put ` + p.at("other") + `
		try 'write to .bashrc' put ` + p.at(".bashrc") + `
		try 'read .bashrc' grep -q mine ` + p.at(".bashrc") + `
		try 'write to the state' put ` + p.at(".state/log") + `
		try 'write to the settings' put ` + p.at(".state/settings") + `
		try 'replace the settings' mv ` + p.at(".state/log") + ` ` + p.at(".state/settings") + `
		try 'read the settings' grep -q mine ` + p.at(".state/settings") + `
		try 'read a key' cat ` + p.at(".ssh/id") + `
		try 'put a key' put ` + p.at(".ssh/new") + `
		try 'read a key in the state' cat ` + p.at(".state/keys/key") + `
		try 'read a hidden file' grep -q . ` + p.at("work/secret") + `
		try 'write to a new directory' put ` + p.at("new/file") + `
		try 'read the real cache' cat ` + p.at(".cache/tool/blob") + `
		try 'write to the cache' put ` + p.at(".cache/mine") + `
		try 'write to /tmp' put /tmp/file
		try 'see the real /tmp' test -e /tmp/corral-sandbox-test
		try 'write to the runtime directory' put ` + p.at("run/file") + `
		try 'write to /usr' put /usr/file
		try 'write to /sys' mkdir /sys/fs/cgroup/new
		try 'see other processes' test "$(ls -d /proc/[0-9]* | wc -l)" -gt 6
		try 'be in the workspace' test "$(pwd)" = ` + p.at("work")
	assert.Equal(t, strings.TrimSpace(`
write to the workspace: yes
write to the home directory: no
write to .bashrc: no
read .bashrc: yes
write to the state: yes
write to the settings: no
replace the settings: no
read the settings: yes
read a key: no
put a key: no
read a key in the state: no
read a hidden file: no
write to a new directory: yes
read the real cache: no
write to the cache: yes
write to /tmp: yes
see the real /tmp: no
write to the runtime directory: yes
write to /usr: no
write to /sys: no
see other processes: no
be in the workspace: yes`), strings.TrimSpace(p.run(script)))
	assert.FileExists(t, p.at(".cache/private"+p.at(".cache/mine")))
	assert.NoFileExists(t, p.at(".cache/mine"))
	assert.Equal(t, "no", strings.TrimSpace(p.run(`test -e /tmp/file && echo yes || echo no`)), "/tmp is new each time")
}

func TestNetwork(t *testing.T) {
	p := newPlace(t)
	const interfaces = `ls /sys/class/net >/dev/null; tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' \n'`
	p.Network = false
	assert.Equal(t, "lo", p.run(interfaces))
}

// TestNewCommand_Refuses what would make the sandbox ineffective.
func TestNewCommand_Refuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(p *place)
		want   string
	}{
		{"the home directory as workspace", func(p *place) { p.Workspace = p.Home },
			`"HOME" cannot be writable in a sandbox: it contains "HOME"`},
		{"/ as workspace", func(p *place) { p.Workspace = "/" }, `"/" cannot be writable in a sandbox: it contains "/tmp"`},
		{"/tmp as workspace", func(p *place) { p.Workspace = "/tmp" },
			`"/tmp" cannot be writable in a sandbox: it contains "/tmp"`},
		{"a hidden workspace", func(p *place) { p.Hide = []string{p.at("wor?")} },
			`the workspace "HOME/work" is hidden by Hide=, which matches "HOME/work"`},
		{"the home directory as state", func(p *place) { p.Writable = []string{p.at("") + "/"} },
			`"HOME" cannot be writable in a sandbox: it contains "HOME"`},
		{"state behind a link in the workspace", func(p *place) {
			require.NoError(p.t, os.Symlink("work/state", p.at(".state")))
			require.NoError(p.t, os.Symlink("..", p.at("work/state")))
			p.Writable = []string{p.at(".state") + "/"}
		}, `"HOME/.state/" cannot be writable in a sandbox: "HOME/work/state" is a symbolic link in a directory ` +
			`that the agent can change`},
		{"state behind a link in other state", func(p *place) {
			p.write(".a/x", "")
			require.NoError(p.t, os.Symlink("/etc", p.at(".a/b")))
			p.Writable = []string{p.at(".a") + "/", p.at(".a/b") + "/"}
		}, `"HOME/.a/b/" cannot be writable in a sandbox: "HOME/.a/b" is a symbolic link in a directory ` +
			`that the agent can change`},
		{"hooks behind a link", func(p *place) {
			p.git("work", "init", "-q")
			require.NoError(p.t, os.RemoveAll(p.at("work/.git/hooks")))
			require.NoError(p.t, os.Symlink("../hooks", p.at("work/.git/hooks")))
		}, `cannot protect the git repository of the workspace: "HOME/work/.git/hooks" is a symbolic link, ` +
			`which the agent could replace`},
		{"a redirected git directory", func(p *place) {
			p.git("work", "init", "-q")
			p.write("work/.git/commondir", "../other\n")
		}, `cannot protect the git repository of the workspace: "HOME/work/.git/commondir" makes git ` +
			`use another directory; remove it`},
		{"configuration behind a link", func(p *place) {
			p.git("work", "init", "-q")
			require.NoError(p.t, os.Rename(p.at("work/.git/config"), p.at("work/config")))
			require.NoError(p.t, os.Symlink("../config", p.at("work/.git/config")))
		}, `cannot protect the git repository of the workspace: HOME/work/.git/config is a symbolic link, ` +
			`expected a regular file`},
		{"a FIFO as configuration", func(p *place) {
			require.NoError(p.t, os.Mkdir(p.at("work/.git"), 0o700))
			require.NoError(p.t, unix.Mkfifo(p.at("work/.git/config"), 0o600))
		}, `cannot protect the git repository of the workspace: HOME/work/.git/config is a FIFO, expected a regular file`},
		{"a missing workspace", func(p *place) { p.Workspace = p.at("none") },
			`lstat HOME/none: no such file or directory`},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPlace(t)
			c.change(p)
			_, err := NewCommand(p.Request)
			require.Error(t, err)
			assert.Equal(t, c.want, strings.ReplaceAll(err.Error(), p.Home, "HOME"))
		})
	}
	t.Run("without bubblewrap", func(t *testing.T) {
		p := newPlace(t)
		t.Setenv("PATH", p.Home)
		_, err := NewCommand(p.Request)
		require.ErrorIs(t, err, ErrNotInstalled)
	})
}

// TestSandbox_ProtectsGit: the agent commits, but cannot make a later git outside run programs.
func TestSandbox_ProtectsGit(t *testing.T) {
	const attack = `
		common=$(git rev-parse --path-format=absolute --git-common-dir) own=$(git rev-parse --absolute-git-dir)
		git commit -q --allow-empty -m inside && echo "committed: $(git log --format=%s | wc -l)"
		exec 2>/dev/null
		try() { if "${@:2}"; then echo "$1"; fi; }
		put() { echo x >"$1"; }
		try 'put a hook' put $common/hooks/post-commit
		try 'replace the hooks' mv $common/hooks $common/hooks2
		try 'change the configuration' git config core.fsmonitor /tmp/evil
		try 'write the configuration' put $common/config
		cp $common/config /tmp/c; try 'replace the configuration' mv /tmp/c $common/config
		try 'configure the worktree' put $common/config.worktree
		try 'configure its worktree' put $own/config.worktree
		try 'replace the git directory' mv $common ${common}2
		[ $own = $common ] || try 'redirect the worktree' put $own/commondir
		[ $own = $common ] || try 'redirect the worktree back' put $own/gitdir
		try 'put another worktree' mkdir $common/worktrees/other
		try 'write to another worktree' put $common/worktrees/second/HEAD
		try 'configure a submodule' put $common/modules/sub/config
		try 'put a submodule' mkdir $common/modules/new
		[ ! -f .git ] || try 'write .git' put .git
		[ ! -f .git ] || try 'remove .git' rm .git
		true`
	for _, c := range []struct {
		name, workspace, allows string
		prepare                 func(p *place)
	}{
		{"the main worktree", "work", "configure the worktree\nconfigure its worktree\n", nil},
		{"a subdirectory", "work/sub/dir", "configure the worktree\nconfigure its worktree\n", func(p *place) {
			p.write("work/sub/dir/file", "")
		}},
		{"a linked worktree", "linked", "configure the worktree\nconfigure its worktree\n", func(p *place) {
			p.git("work", "worktree", "add", "-q", "../linked")
			p.git("work", "worktree", "add", "-q", "../second")
		}},
		{"configuration per worktree", "linked", "", func(p *place) {
			p.git("work", "config", "extensions.worktreeConfig", "true")
			p.git("work", "worktree", "add", "-q", "../linked")
			p.git("work", "worktree", "add", "-q", "../second")
		}},
		{"submodules", "work", "configure the worktree\nconfigure its worktree\n", func(p *place) {
			require.NoError(p.t, os.Mkdir(p.at("lib"), 0o700))
			p.git("lib", "init", "-q")
			p.git("lib", "commit", "-q", "--allow-empty", "-m", "lib")
			p.git("work", "submodule", "--quiet", "add", "--name", "sub", p.at("lib"), "sub")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPlace(t)
			p.git("work", "init", "-q", "-b", "trunk")
			p.git("work", "commit", "-q", "--allow-empty", "-m", "outside")
			if c.prepare != nil {
				c.prepare(p)
			}
			p.Workspace = p.at(c.workspace)
			assert.Equal(t, "committed: 2\n"+c.allows, p.run(attack))
		})
	}
}

// TestRepository_OfOthers: an agent may write any path into the file .git of its workspace.
func TestRepository_OfOthers(t *testing.T) {
	for _, c := range []struct {
		name    string
		prepare func(p *place)
	}{
		{"a file that names another repository", func(p *place) {
			p.write("work/.git", "gitdir: "+p.at("other/.git")+"\n")
		}},
		{"one that names the worktree of another repository", func(p *place) {
			p.git("other", "worktree", "add", "-q", "../linked")
			p.write("work/.git", "gitdir: "+p.at("other/.git/worktrees/linked")+"\n")
		}},
		{"one that names a directory in the workspace, which names another repository", func(p *place) {
			p.write("work/.git", "gitdir: "+p.at("work/worktrees/x")+"\n")
			p.write("work/worktrees/x/gitdir", p.at("work/.git")+"\n")
			p.write("work/worktrees/x/commondir", p.at("other/.git")+"\n")
		}},
		{"a link to another repository", func(p *place) {
			require.NoError(p.t, os.Symlink("../other/.git", p.at("work/.git")))
		}},
		{"the repository of the home directory", func(p *place) {
			p.git("", "init", "-q")
			require.NoError(p.t, os.RemoveAll(p.at("other")))
			require.NoError(p.t, os.Rename(p.at(".git"), p.at("other")))
			require.NoError(p.t, os.Rename(p.at("other"), p.at(".git")))
			require.NoError(p.t, os.Symlink(".", p.at("other")))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPlace(t)
			require.NoError(t, os.Mkdir(p.at("other"), 0o700))
			p.git("other", "init", "-q")
			p.git("other", "commit", "-q", "--allow-empty", "-m", "other")
			c.prepare(p)
			assert.Equal(t, "refused\n", p.run(`touch `+p.at("other/.git/objects/x")+` 2>/dev/null || echo refused`))
		})
	}
}

func TestUnquote(t *testing.T) {
	for pattern, want := range map[string]string{`/a/`: "/a/", `/a\*b`: "/a*b", `/a\\b`: `/a\b`} {
		got, literal := unquote(pattern)
		assert.True(t, literal, pattern)
		assert.Equal(t, want, got)
	}
	for _, pattern := range []string{"/a*", "/?", "/[a]", `/a\`} {
		_, literal := unquote(pattern)
		assert.False(t, literal, pattern)
	}
}

func TestAppendMounts_InOrder(t *testing.T) {
	v := view{"/b": writable, "/a/b": hidden, "/a": readOnly, "/a/b/c": writable}
	args, err := v.appendMounts(nil, Request{})
	require.NoError(t, err)
	assert.Equal(t, []string{"--ro-bind", "/a", "/a", "--bind", "/b", "/b"}, slices.DeleteFunc(args, func(a string) bool {
		return a == "/a/b" // it does not exist
	}))
}
