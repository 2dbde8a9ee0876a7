package environments_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/environment"
	"github.com/corrald/corral/supervisor/environments"
)

// composer returns a Composer whose user manager has these variables, and its runtime directory.
// Its bus does not exist.
func composer(t *testing.T, manager ...string) (c *environments.Composer, runtime string) {
	t.Helper()
	runtime = filepath.Join(t.TempDir(), "corral")
	require.NoError(t, os.Mkdir(runtime, 0o700))
	read := func(context.Context) ([]string, error) { return manager, nil }
	return environments.NewComposer(read, "/shim", runtime, "unix:path="+runtime+"/bus"), runtime
}

func variable(name, value, source string) environment.Variable {
	return environment.Variable{Name: name, Value: value, Source: source}
}

func TestCompose_CombinesAllSources(t *testing.T) {
	c, runtime := composer(t, "HOME=/home/ann", "X=manager", "TMUX=1")
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte("F=file\nX=file\n"), 0o600))
	variables, err := c.Compose(t.Context(), environments.Sources{
		Definition: []string{"D=definition"},
		Files:      []environment.SourceFile{{Path: file}, {Path: "/nonexistent", Optional: true}},
		Caller:     []string{"C=caller"}, Session: []string{"S=session"},
	}, "shop", "/work")
	require.NoError(t, err)
	assert.ElementsMatch(t, []environment.Variable{
		variable("HOME", "/home/ann", environment.Manager),
		variable("TERM", "tmux-256color", environment.Corral),
		variable("COLORTERM", "truecolor", environment.Corral),
		variable("PWD", "/work", environment.Corral),
		variable("CORRAL_SESSION", "shop", environment.Corral),
		variable("XDG_RUNTIME_DIR", filepath.Dir(runtime), environment.Corral),
		variable("DBUS_SESSION_BUS_ADDRESS", "unix:path="+runtime+"/bus", environment.Corral),
		variable("SSH_AUTH_SOCK", runtime+"/.ssh-auth.sock", environment.Corral),
		variable("D", "definition", environment.Definition),
		variable("F", "file", environment.File),
		variable("X", "file", environment.File),
		variable("C", "caller", environment.Caller),
		variable("S", "session", environment.Session),
	}, variables)
}

// TestCompose_PortsAreThoseOfTheSession: only the definition and the session itself override
// Corral's variables. The caller may be an agent with ports of its own.
func TestCompose_PortsAreThoseOfTheSession(t *testing.T) {
	c, _ := composer(t, "PORT=1")
	sources := environments.Sources{
		Corral: []string{"CORRAL_PORT=3", "PORT=3"}, Caller: []string{"CORRAL_PORT=2", "PORT=2"},
	}
	variables, err := c.Compose(t.Context(), sources, "shop", "/work")
	require.NoError(t, err)
	assert.Subset(t, variables, []environment.Variable{
		variable("CORRAL_PORT", "3", environment.Corral), variable("PORT", "3", environment.Corral),
	})
	sources.Session = []string{"PORT=4"}
	variables, err = c.Compose(t.Context(), sources, "shop", "/work")
	require.NoError(t, err)
	assert.Contains(t, variables, variable("PORT", "4", environment.Session))
}

// TestCompose_AnAccountIsNotReplacedByAnother: what the definition and the files of an account set
// is inherited from nowhere else. Only the session's own variables override it.
func TestCompose_AnAccountIsNotReplacedByAnother(t *testing.T) {
	file := filepath.Join(t.TempDir(), "work.env")
	require.NoError(t, os.WriteFile(file, []byte("KEY=work\nOWN=work\nHOME=/work\n"), 0o600))
	sources := environments.Sources{
		Account:    true,
		Definition: []string{"DIR=/home/ann/.a-work"},
		Files:      []environment.SourceFile{{Path: file, Private: true}},
		Unset:      []string{"TOKEN"},
		Caller:     []string{"KEY=caller", "DIR=/home/ann/.a", "TOKEN=caller", "OTHER=caller"},
		Session:    []string{"OWN=session"},
	}
	for _, account := range []bool{true, false} {
		sources.Account = account
		c, _ := composer(t, "KEY=manager", "DIR=/home/ann/.b", "TOKEN=manager", "HOME=/home/ann")
		variables, err := c.Compose(t.Context(), sources, "shop", "/")
		require.NoError(t, err)
		got := map[string]string{}
		for _, v := range variables {
			got[v.Name] = v.Value
		}
		want := map[string]string{"KEY": "work", "DIR": "/home/ann/.a-work"}
		if !account {
			want = map[string]string{"KEY": "caller", "DIR": "/home/ann/.a"}
		}
		for name, value := range want {
			assert.Equal(t, value, got[name], name)
		}
		assert.Equal(t, "session", got["OWN"])
		assert.Equal(t, "/work", got["HOME"])
		assert.Equal(t, "caller", got["OTHER"])
		assert.NotContains(t, got, "TOKEN")
	}
}

func TestCompose_CreatesDirectories(t *testing.T) {
	c, runtime := composer(t)
	dir := filepath.Join(runtime, "a/b")
	for range 2 { // it may exist
		_, err := c.Compose(t.Context(), environments.Sources{Directories: []string{dir}}, "shop", "/")
		require.NoError(t, err)
	}
	info, err := os.Stat(dir)
	require.NoError(t, err)
	assert.Equal(t, os.ModeDir|0o700, info.Mode())
	require.NoError(t, os.WriteFile(dir+"/file", nil, 0o600))
	_, err = c.Compose(t.Context(), environments.Sources{Directories: []string{dir + "/file/x"}}, "shop", "/")
	assert.EqualError(t, err, "cannot create a directory of the agent's definition: mkdir "+dir+"/file: not a directory")
}

func TestCompose_Fails(t *testing.T) {
	c, runtime := composer(t)
	missing := environments.Sources{Files: []environment.SourceFile{{Path: "/nonexistent"}}}
	_, err := c.Compose(t.Context(), missing, "shop", "/")
	require.ErrorContains(t, err, "cannot read the environment file")
	broken := func(context.Context) ([]string, error) { return nil, errors.New("broken") }
	c = environments.NewComposer(broken, "/shim", runtime, "unix:path=/bus")
	_, err = c.Compose(t.Context(), environments.Sources{}, "shop", "/")
	require.EqualError(t, err, "broken")
}

// TestCompose_RunsTheLoginShellWithoutCallersPath: there is no bus on which a shell could be
// started, so that each use of its environment is a problem.
func TestCompose_RunsTheLoginShellWithoutCallersPath(t *testing.T) {
	for _, row := range []struct {
		what    string
		sources environments.Sources
		used    bool
	}{
		{"no caller", environments.Sources{LoginShell: true}, true},
		{"a caller with a PATH", environments.Sources{LoginShell: true, Caller: []string{"PATH=/mine"}}, false},
		{"a caller with the manager's PATH", environments.Sources{LoginShell: true, Caller: []string{"PATH=/bin"}}, true},
		{"disabled", environments.Sources{}, false},
	} {
		t.Run(row.what, func(t *testing.T) {
			c, _ := composer(t, "PATH=/bin", "SHELL=/bin/sh")
			var problems []error
			c.LoginShellProblem = func(err error) { problems = append(problems, err) }
			_, err := c.Compose(t.Context(), row.sources, "shop", "/")
			require.NoError(t, err, "the run starts nevertheless")
			if !row.used {
				assert.Empty(t, problems)
				return
			}
			require.Len(t, problems, 1)
			assert.ErrorContains(t, problems[0], "cannot read the environment of the login shell /bin/sh")
		})
	}
}

// TestCompose_UpdatesTheLinkToTheSSHAgent: the caller's ssh-agent, later the manager's if the
// caller's has ended.
func TestCompose_UpdatesTheLinkToTheSSHAgent(t *testing.T) {
	dir := t.TempDir()
	listen := func(name string) *net.UnixListener {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, name), Net: "unix"})
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	listen("manager")
	callers := listen("caller")
	c, runtime := composer(t, "SSH_AUTH_SOCK="+dir+"/manager")
	target := func(caller ...string) string {
		t.Helper()
		_, err := c.Compose(t.Context(), environments.Sources{Caller: caller}, "shop", "/")
		require.NoError(t, err)
		to, err := os.Readlink(runtime + "/.ssh-auth.sock")
		require.NoError(t, err)
		return filepath.Base(to)
	}
	assert.Equal(t, "manager", target())
	assert.Equal(t, "caller", target("SSH_AUTH_SOCK="+dir+"/caller"))
	assert.Equal(t, "caller", target(), "it still responds")
	require.NoError(t, callers.Close())
	assert.Equal(t, "manager", target("SSH_AUTH_SOCK="+dir+"/caller"))
}

func TestFindProgram(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tool"), nil, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "plain"), nil, 0o600))
	path := func(path string) environments.Sources { return environments.Sources{Session: []string{"PATH=" + path}} }
	for _, row := range []struct {
		what, name, dir string
		sources         environments.Sources
		want            string // the error, "" for none
	}{
		{"in the PATH", "tool", "/", path("/none:" + dir), ""},
		{"not in the PATH", "nowhere", "/", path(dir), `command "nowhere" not found in PATH=` + dir},
		{"not executable", "plain", "/", path(dir), `command "plain" is not executable`},
		{"an absolute path", dir + "/none", "", path(""), `command "` + dir + `/none" not found`},
		{"a relative path", "./none", dir, path(""), `command "./none" not found`},
		{"a relative path, unknown workspace", "./none", "", path(""), ""},
		{"a relative PATH", "nowhere", dir, path("bin"), `command "nowhere" not found in PATH=bin`},
		{"a relative PATH, unknown workspace", "nowhere", "", path("/bin:bin"), ""},
		{
			"an environment that the start rejects", "nowhere", dir,
			environments.Sources{Files: []environment.SourceFile{{Path: "/none"}}},
			"cannot read the environment file: open /none: no such file or directory",
		},
	} {
		t.Run(row.what, func(t *testing.T) {
			c, _ := composer(t)
			err := c.FindProgram(t.Context(), row.name, row.dir, row.sources)
			if row.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, row.want)
		})
	}
}
