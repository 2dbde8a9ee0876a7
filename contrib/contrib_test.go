// Package contrib tests the files in contrib with a real daemon, as far as that is quick: make
// pictures shows them in the real bars.
package contrib

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/testbed"
)

func TestMain(m *testing.M) { testbed.Main(m) }

// installation is a daemon with two sessions, and the programs of contrib in PATH.
type installation struct {
	t           *testing.T
	home        string
	environment []string
}

func newInstallation(t *testing.T) *installation {
	t.Helper()
	programs := testbed.Programs(t)
	here, err := os.Getwd()
	require.NoError(t, err)
	p := &installation{t: t, home: testbed.Dir(t)}
	path := filepath.Dir(programs.Corralctl)
	for _, folder := range []string{"i3", "tmux", "rofi", "indicator"} {
		path += ":" + filepath.Join(here, folder)
	}
	p.environment = append(os.Environ(), "PATH="+path+":/usr/local/bin:/usr/bin:/bin", "HOME="+p.home,
		"XDG_STATE_HOME="+p.home+"/state", "XDG_CONFIG_HOME="+p.home+"/.config",
		"TMUX_TMPDIR="+p.home, "LANG=C.UTF-8")
	daemon := p.command(programs.Corrald)
	var journal bytes.Buffer
	daemon.Stdout, daemon.Stderr = &journal, &journal
	require.NoError(t, daemon.Start())
	t.Cleanup(func() {
		_ = exec.Command("systemctl", "--user", "kill", "--signal=KILL", "app-corral-*.scope").Run()
		_ = daemon.Process.Signal(syscall.SIGTERM)
		if err := daemon.Wait(); err != nil || t.Failed() {
			t.Logf("corrald: %v\n%s", err, journal.String())
		}
	})
	testbed.Poll(t, "the daemon is there", func() bool { return p.command("corralctl", "list").Run() == nil })
	p.run("corralctl", "run", "-q", "--id", "shop", "--", "sleep", "1000")
	p.fail()
	return p
}

// fail creates the session cart, whose agent has failed.
func (p *installation) fail() {
	p.t.Helper()
	p.run("corralctl", "run", "-q", "--id", "cart", "--", "sh", "-c", "exit 3")
	p.run("sh", "-c", "corralctl wait cart || :")
}

func (p *installation) command(name string, args ...string) *exec.Cmd {
	// env searches PATH of the command's environment; exec.Command would search that of the test.
	cmd := exec.Command("/usr/bin/env", append([]string{name}, args...)...)
	cmd.Env, cmd.Dir = p.environment, p.home
	return cmd
}

// run runs a command and returns its output.
func (p *installation) run(name string, args ...string) string {
	p.t.Helper()
	cmd := p.command(name, args...)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	require.NoError(p.t, err, "%s %q: %s%s", name, args, out, complaints.String())
	return strings.TrimSpace(string(out))
}

// lines starts a command that prints endlessly, as bars do, in a process group that is killed at
// the end of the test.
func (p *installation) lines(name string, args ...string) <-chan string {
	p.t.Helper()
	cmd := p.command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	require.NoError(p.t, err)
	in, err := cmd.StdinPipe() // bars report clicks on standard input
	require.NoError(p.t, err)
	require.NoError(p.t, cmd.Start())
	lines := make(chan string, 1000)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
	}()
	p.t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		_ = in.Close()
		for range lines { // until all processes have exited
		}
		_ = cmd.Wait()
	})
	return lines
}

// until reads lines until one matches.
func (p *installation) until(lines <-chan string, what string) string {
	p.t.Helper()
	for {
		if line := testbed.Receive(p.t, lines, what); regexp.MustCompile(what).MatchString(line) {
			return line
		}
	}
}

// execOf returns the command line from a bar's configuration, which the bar passes to a shell.
func execOf(t *testing.T, file, pattern string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	found := regexp.MustCompile(pattern).FindSubmatch(text)
	require.NotNil(t, found, "%s has no %s", file, pattern)
	return string(found[1])
}

func TestBars(t *testing.T) {
	p := newInstallation(t)
	require.NoError(t, os.WriteFile(p.home+"/i3status",
		[]byte("general { output_format = \"i3bar\" }\norder += \"load\"\nload { format = \"busy\" }\n"), 0o600))
	for _, bar := range []struct{ name, command, first, then, ended string }{
		{"waybar", execOf(t, "waybar/corral.jsonc", `"exec": "(.*)"`), `^{"text":"1 running, 1 failed",.*"class":"failed"}$`,
			`^{"text":"2 running`, `"2 running, 1 turn ended"`},
		{"polybar", execOf(t, "polybar/corral.ini", `(?m)^exec = (.*)$`),
			`^%{F#50fa7b}1 running%{F-} %{F#ff5555}1 failed%{F-}$`, `2 running`, `%{F#8be9fd}1 turn ended%{F-}$`},
		{"i3blocks", execOf(t, "i3/i3blocks.conf", `(?m)^command=(.*)$`),
			`^{"full_text":"1 running, 1 failed","color":"#ff5555"}$`, `2 running`,
			`^{"full_text":"2 running, 1 turn ended","color":"#8be9fd"}$`},
		{"i3bar", execOf(t, "i3/corral.conf", `(?m)^    status_command (.*)$`) + " -c i3status",
			`"1 running".*"1 failed".*"busy"`, `"2 running".*"busy"`, `"1 turn ended","color":"#8be9fd"`},
	} {
		t.Run(bar.name, func(t *testing.T) {
			p := &installation{t: t, home: p.home, environment: p.environment}
			lines := p.lines("sh", "-c", bar.command)
			p.until(lines, bar.first)
			p.run("corralctl", "run", "-q", "--id", bar.name, "--", "sh", "-c",
				"read go; corralctl report idle --reason=turn-ended; exec sleep 1000")
			p.until(lines, bar.then)
			p.run("corralctl", "rm", "cart")
			p.run("corralctl", "send", bar.name, "go on")
			p.until(lines, bar.ended)
			p.run("corralctl", "rm", "--force", bar.name)
			p.fail()
		})
	}
}

// TestI3status_PrintsJSON expects one endless JSON array, whether i3status prints blocks or, as
// with Debian's configuration, text.
func TestI3status_PrintsJSON(t *testing.T) {
	p := newInstallation(t)
	for general, want := range map[string][]string{
		`general { interval = 1 output_format = "i3bar" }`: {`a "busy" \ one`, "now"},
		"general { interval = 1 }":                         {`a "busy" \ one | now`},
	} {
		configuration := strings.ReplaceAll(general, " output", "\noutput") + `
order += "load"
order += "disk /"
load { format = "a \"busy\" \\ one" }
disk "/" { format = "now" }
`
		require.NoError(t, os.WriteFile(p.home+"/i3status", []byte(configuration), 0o600))
		lines := p.lines("corral-i3status", "-c", "i3status")
		text := ""
		for !strings.Contains(text, "failed") || !strings.Contains(text, "now") {
			text += testbed.Receive(t, lines, "a line") + "\n"
		}
		head, array, _ := strings.Cut(text, "\n")
		assert.JSONEq(t, `{"version":1}`, head)
		var all [][]struct {
			Text string `json:"full_text"`
		}
		require.NoError(t, json.Unmarshal([]byte(array+"]"), &all), text)
		assert.Empty(t, all[0])
		var blocks []string
		for _, block := range all[len(all)-1] {
			blocks = append(blocks, block.Text)
		}
		assert.Equal(t, append([]string{"1 running", "1 failed"}, want...), blocks, general)
	}
}

func TestTmuxStatusLine(t *testing.T) {
	p := newInstallation(t)
	here, err := os.Getwd()
	require.NoError(t, err)
	p.run("tmux", "-L", "line", "-f", here+"/tmux/corral.conf", "new-session", "-d", "sleep 1000")
	// In case the test fails before it stops the server.
	t.Cleanup(func() { _ = p.command("tmux", "-L", "line", "kill-server").Run() })
	counts := func() string { return p.run("tmux", "-L", "line", "show-options", "-gqv", "@corral") }
	testbed.Poll(t, "the counts are there", func() bool {
		return counts() == "#[fg=#50fa7b]1 running#[fg=default] #[fg=#ff5555]1 failed#[fg=default]"
	})
	runs := func() string { return p.run("tmux", "-L", "line", "show-options", "-gv", "@corral-tmux") }
	for _, times := range []int{1, 1, 5} { // one after the other, then at once
		before := runs()
		for range times {
			p.run("tmux", "-L", "line", "source-file", here+"/tmux/corral.conf")
		}
		testbed.Poll(t, "it runs anew", func() bool { return runs() != before })
	}
	testbed.Poll(t, "one is left of those that ran", func() bool {
		// pgrep fails while there is no such process.
		count, _ := p.command("pgrep", "-fc", "^[^ ]*corralctl monitor --format=polybar").Output()
		return string(count) == "1\n"
	})
	assert.Equal(t, 1, strings.Count(p.run("tmux", "-L", "line", "show-options", "-gv", "status-right"), "#{@corral}"))
	p.run("corralctl", "stop", "shop")
	testbed.Poll(t, "a change is shown", func() bool { return counts() == "#[fg=#ff5555]1 failed#[fg=default]" })
	p.run("tmux", "-L", "line", "kill-server")
	testbed.Poll(t, "nothing is left of it", func() bool {
		return p.command("pgrep", "-f", "monitor --format=polybar").Run() != nil
	})
}

func TestPicker(t *testing.T) {
	p := newInstallation(t)
	pick := func(what, id string) string {
		t.Helper()
		cmd := p.command("corral-rofi")
		cmd.Env = append(p.environment, "ROFI_RETV="+what, "ROFI_INFO="+id)
		out, err := cmd.Output()
		require.NoError(t, err)
		return string(out)
	}
	p.run("corralctl", "run", "-q", "--id", "done", "--", "sh", "-c",
		"corralctl report idle --reason=turn-ended; exec sleep 1000")
	p.run("corralctl", "wait", "--until=turn-ended", "done")
	rows := pick("0", "")
	assert.Regexp(t, `(?m)^cart +sh +failed .*\x00info\x1fcart$`, rows)
	assert.Regexp(t, `(?m)^shop +sleep +running .*\x00info\x1fshop$`, rows)
	assert.Regexp(t, `(?m)^done +sh +running +turn ended .*\x00info\x1fdone$`, rows)
	assert.Contains(t, rows, "\x00urgent\x1f0,1\n\x00active\x1f2\n")

	pick("11", "shop")
	p.run("corralctl", "wait", "--until=stopped", "shop")
	assert.Regexp(t, `(?m)^shop .*running`, pick("10", "shop"), "resumed, and the list as it is then")
	assert.Contains(t, pick("10", "shop"), "\x00message\x1fcorralctl: cannot resume \"shop\"", "errors are shown")

	opened := filepath.Join(p.home, "opened")
	terminal := filepath.Join(p.home, "terminal")
	require.NoError(t, os.WriteFile(terminal,
		[]byte("#!/bin/sh\necho \"$@\" >"+opened+".new && mv "+opened+".new "+opened+"\n"), 0o700))
	require.NoError(t, os.MkdirAll(p.home+"/.config/corral", 0o700))
	require.NoError(t, os.WriteFile(p.home+"/.config/corral/corral.conf", []byte("[Corral]\nTerminal="+terminal+"\n"),
		0o600))
	testbed.Systemctl(t, "set-environment", "DISPLAY=:99")
	defer testbed.Systemctl(t, "unset-environment", "DISPLAY")
	pick("1", "cart")
	arguments := testbed.WaitFile(t, opened, func([]byte) bool { return true })
	assert.Contains(t, string(arguments), "attach cart")
	assert.Equal(t, "2", p.run("corralctl", "show", "-P", "NRuns", "cart"), "it had ended, and was resumed")
}

func TestSandboxes_AreProfiles(t *testing.T) {
	profiles, warnings := config.LoadSandboxes([]string{"."})
	assert.Empty(t, warnings)
	assert.Equal(t, []string{"podman", "srt"}, profiles.Names())
	for name, profile := range profiles {
		assert.Equal(t, name, profile.Wrapper[0])
	}
	settings, err := os.ReadFile("sandboxes/srt.json")
	require.NoError(t, err)
	assert.True(t, json.Valid(settings))
}
