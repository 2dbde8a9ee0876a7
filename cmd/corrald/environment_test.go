package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed"
)

// setLoginShell sets the user manager's home directory and login shell for this test, with these
// start-up files in the home.
func setLoginShell(t *testing.T, shell string, files map[string]string) (home string) {
	t.Helper()
	home = testbed.Dir(t)
	for name, text := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(home, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(home, name), []byte(text), 0o600))
	}
	setManagerEnvironment(t, "HOME="+home, "XDG_CONFIG_HOME="+home+"/.config", "SHELL="+shell)
	return home
}

// setManagerEnvironment sets variables of the user manager, as systemctl --user import-environment
// does, until the test ends.
func setManagerEnvironment(t *testing.T, entries ...string) {
	t.Helper()
	require.NoError(t, exec.Command("systemctl", append([]string{"--user", "set-environment"}, entries...)...).Run())
	t.Cleanup(func() {
		for _, entry := range entries {
			name, _, _ := strings.Cut(entry, "=")
			args := []string{"--user", "unset-environment", name}
			if old, was := os.LookupEnv(name); was && name != "SHELL" && name != "SSH_AUTH_SOCK" {
				args = []string{"--user", "set-environment", name + "=" + old}
			}
			assert.NoError(t, exec.Command("systemctl", args...).Run())
		}
	})
}

// agentEnvironment creates a session whose agent writes its environment, and returns that.
func (d *corrald) agentEnvironment(t *testing.T, id string, sp spec) map[string]string {
	t.Helper()
	file := filepath.Join(testbed.Dir(t), "environment")
	sp["Command"] = []string{"/bin/sh", "-c", "/usr/bin/env -0 >$0.new; /bin/mv $0.new $0; exec /bin/sleep 1000", file}
	s := d.create(t, id, sp)
	found := map[string]string{}
	for entry := range strings.SplitSeq(string(testbed.WaitFile(t, file, nil)), "\x00") {
		if name, value, ok := strings.Cut(entry, "="); ok {
			found[name] = value
		}
	}
	require.NoError(t, s.do("Stop", uint64(0)))
	return found
}

// TestLoginShell_SuppliesEnvironmentWithoutCaller checks that a session created without the
// environment of a caller gets that of the login shell, such as a PATH that nvm has extended.
func TestLoginShell_SuppliesEnvironmentWithoutCaller(t *testing.T) {
	const nvm = "export NVM_DIR=$HOME/.nvm\nnvm() { :; }\n" +
		"export PATH=$HOME/.nvm/bin:$PATH KEY_OF_SHELL=from-$0 TMUX_PANE=%7 SHLVL=9\n" +
		"echo Welcome to the machine!\n"
	for name, files := range map[string]map[string]string{
		"bash": {".bash_profile": ". ~/.bashrc\n", ".bashrc": "case $- in *i*) ;; *) return;; esac\n" + nvm},
		"zsh":  {".zshrc": nvm},
		"fish": {".config/fish/config.fish": "echo Hello\n" +
			"set -gx PATH $HOME/.nvm/bin $PATH\nset -gx KEY_OF_SHELL from-fish\n"},
		"dash": {".profile": nvm},
	} {
		t.Run(name, func(t *testing.T) {
			shell, err := exec.LookPath(name)
			require.NoError(t, err)
			home := setLoginShell(t, shell, files)
			d := startDaemon(t)
			got := d.agentEnvironment(t, "auto", spec{})
			assert.Contains(t, strings.Split(got["PATH"], ":"), home+"/.nvm/bin")
			assert.Contains(t, got["KEY_OF_SHELL"], "from-")
			assert.Empty(t, got["TMUX_PANE"])
			assert.NotContains(t, got, "CORRAL_LOGIN_SHELL")
			assert.Equal(t, "tmux-256color", got["TERM"])
			assert.NotEqual(t, "9", got["SHLVL"])

			own := d.agentEnvironment(t, "called",
				spec{"CallerEnvironment": []string{"PATH=/mine:/usr/bin:/bin", "TMUX=x", "KEY=1"}})
			assert.Equal(t, "/mine:/usr/bin:/bin", own["PATH"])
			assert.NotContains(t, own, "KEY_OF_SHELL", "the caller's environment replaces that of the login shell")
			assert.NotContains(t, own, "TMUX")
			assert.Equal(t, "1", own["KEY"])
		})
	}
}

// TestLoginShell_TimesOutAndIsReported checks login shells that do not answer: they delay a session
// for a bounded time, once, leave no process behind, and are reported as a problem. If the shell
// answers without a prompt, that answer is used.
func TestLoginShell_TimesOutAndIsReported(t *testing.T) {
	const early = "export EARLY=1\n"
	for what, row := range map[string]struct {
		shell  string
		files  map[string]string
		want   string // a variable, "" for none
		reason string // a part of the problem, "" for none
		bounds [2]time.Duration
	}{
		"it hangs": {"bash", map[string]string{".bash_profile": early + ". ~/.bashrc\n",
			".bashrc": "case $- in *i*) sleep 1005;; esac\n"}, "EARLY",
			"with a prompt it did not answer within 4s; its environment without a prompt is used",
			[2]time.Duration{4 * time.Second, 9 * time.Second}},
		"it always hangs": {"zsh", map[string]string{".zshenv": "sleep 1006\n"}, "",
			"without one it did not answer within 5s", [2]time.Duration{5 * time.Second, 9 * time.Second}},
		"it enters tmux": {"bash", map[string]string{".bash_profile": early + ". ~/.bashrc\n",
			".bashrc": "case $- in *i*) ;; *) return;; esac\n" +
				"[ -n \"$TMUX\" ] || exec tmux -L nested new-session -A -s main\nexport LATE=1\n"}, "LATE", "", [2]time.Duration{}},
		"it enters tmux even inside tmux": {"bash",
			map[string]string{".bash_profile": early + "case $- in *i*) exec tmux -L nested new-session -A -s main;; esac\n"},
			"EARLY",
			"with a prompt it ended without an answer", [2]time.Duration{}},
		"it asks something": {"bash",
			map[string]string{".bash_profile": "read -p 'Continue? ' x; read y </dev/tty; export ASKED=1\n"}, "ASKED",
			"", [2]time.Duration{}},
		"it fails": {"zsh", map[string]string{".zshrc": "exit 1\n", ".zprofile": early}, "EARLY",
			"with a prompt it ended without an answer", [2]time.Duration{}},
		"it starts others": {"bash",
			map[string]string{".bash_profile": "setsid sleep 1007 & eval $(ssh-agent) >/dev/null\nexport OTHERS=1\n"},
			"OTHERS", "", [2]time.Duration{}},
		"it prints for ever": {"bash", map[string]string{".bash_profile": "case $- in *i*) yes;; esac\n" + early}, "EARLY",
			"printed too much", [2]time.Duration{}},
	} {
		t.Run(what, func(t *testing.T) {
			shell, err := exec.LookPath(row.shell)
			require.NoError(t, err)
			setLoginShell(t, shell, row.files)
			d := startDaemon(t)
			began := time.Now()
			got := d.agentEnvironment(t, "auto", spec{})
			took := time.Since(began)
			if row.want != "" {
				assert.NotEmpty(t, got[row.want])
			}
			assert.NotContains(t, got, "SSH_AGENT_PID")
			if row.bounds[1] > 0 {
				assert.Greater(t, took, row.bounds[0])
				assert.Less(t, took, row.bounds[1])
			}
			if problem := d.problemTexts(t); row.reason == "" {
				assert.Empty(t, problem)
			} else {
				assert.Contains(t, problem, row.reason)
			}
			began = time.Now()
			d.agentEnvironment(t, "again", spec{})
			assert.Less(t, time.Since(began), 3*time.Second, "the login shell is not run again")
			for pid, line := range commandLines(t) {
				for _, left := range []string{"sleep\x00100", "nested", "ssh-agent", "yes\x00"} {
					assert.NotContains(t, line, left, "process %d", pid)
				}
			}
			units, err := exec.Command("systemctl", "--user", "list-units", "--all", "--plain", "--no-legend",
				"corral-login-shell-*").Output()
			require.NoError(t, err)
			assert.Empty(t, string(units))
		})
	}
}

// problemTexts returns the texts of the daemon's problems, one per line.
func (d *corrald) problemTexts(t *testing.T) string {
	var all []string
	for _, p := range d.problems(t) {
		all = append(all, p.Text)
	}
	return strings.Join(all, "\n")
}

// TestLoginShell_ResultIsCached checks that the login shell is run once for any number of sessions,
// and again when something that it depends on has changed.
func TestLoginShell_ResultIsCached(t *testing.T) {
	home := setLoginShell(t, "/bin/bash",
		map[string]string{".bash_profile": "echo x >>$HOME/asked; sleep 0.3; export SINCE=$(wc -l <$HOME/asked)\n"})
	asked := func() int {
		text, _ := os.ReadFile(home + "/asked")
		return strings.Count(string(text), "x")
	}
	d := startDaemon(t)
	done := make(chan error)
	for range 10 {
		go func() {
			var id, path any
			done <- d.manager("CreateSession",
				[]any{"command", spec{"Command": []string{"sleep", "1000"}, "WorkingDirectory": d.dir}.variants()}, &id, &path)
		}()
	}
	for range 10 {
		require.NoError(t, <-done)
	}
	assert.Equal(t, 1, asked())

	require.NoError(t, os.WriteFile(home+"/.bashrc", nil, 0o600))
	d.agentEnvironment(t, "file", spec{})
	assert.Equal(t, 2, asked(), "a start-up file has changed")
	setManagerEnvironment(t, "IMPORTED=after the daemon's start")
	assert.Equal(t, "after the daemon's start", d.agentEnvironment(t, "import", spec{})["IMPORTED"])
	assert.Equal(t, 3, asked(), "the environment passed to the login shell has changed")
	require.NoError(t, d.manager("Reload", nil))
	assert.Equal(t, "4", d.agentEnvironment(t, "reload", spec{})["SINCE"])
	assert.Equal(t, 4, asked())
	d.agentEnvironment(t, "same", spec{})
	assert.Equal(t, 4, asked())
}

// TestLoginShell_CanBeDisabled checks LoginShell= in the configuration and in an agent definition.
func TestLoginShell_CanBeDisabled(t *testing.T) {
	setLoginShell(t, "/bin/bash", map[string]string{".bash_profile": "export FROM_SHELL=1\n"})
	d := startDaemon(t, "LoginShell=no")
	d.write("config/corral/agents/command.agent.d/x.conf", "[Environment]\nSet=TERM_PROGRAM=mine\n")
	require.NoError(t, d.manager("Reload", nil))
	got := d.agentEnvironment(t, "none", spec{})
	assert.NotContains(t, got, "FROM_SHELL")
	assert.Equal(t, "mine", got["TERM_PROGRAM"], "what a definition sets is kept")
	d.write("config/corral/agents/command.agent.d/x.conf", "[Environment]\nLoginShell=yes\nUnset=LANG\n")
	require.NoError(t, d.manager("Reload", nil))
	got = d.agentEnvironment(t, "one", spec{"CallerEnvironment": []string{"LANG=C"}})
	assert.Equal(t, "1", got["FROM_SHELL"])
	assert.Empty(t, d.problemTexts(t))
	assert.NotContains(t, got, "LANG")
}

// TestResumeCondition_UsesTheSessionsHome checks that the files of an agent are found in the HOME
// of its session.
func TestResumeCondition_UsesTheSessionsHome(t *testing.T) {
	d := startDaemon(t)
	d.defineScript("talker", talker, strings.ReplaceAll(talkerScript, "$home/talks", "$HOME/talks"))
	s, err := d.createWithAgent(t, "talker", "shop", spec{"Environment": []string{"HOME=" + testbed.Dir(t)}})
	require.NoError(t, err)
	id := s.properties().text("ConversationId")
	s.sendLine("hello")
	s.awaitFile("shop.read")
	kill(t, s.properties().number("MainPID"), syscall.SIGKILL)
	s.waitState("failed")
	s.must("Resume")
	assert.True(t, s.properties().isTrue("Resumed"))
	assert.Equal(t, "--resume "+id, s.waitRuns(2)[1])
}
