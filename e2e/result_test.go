//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestResult_OfEveryKindOfExit checks the reported result of each kind of exit on every system, as
// a user sees it.
func TestResult_OfEveryKindOfExit(t *testing.T) {
	onEach(t, func(t *testing.T, d *desk) {
		text := d.write("text", "no program\n")
		d.Run("chmod", "644", text)
		for _, row := range []struct{ name, id, does, want string }{
			{"exit 0", "zero", "exit 0", "completed | success | 1 | 0 | "},
			{"exit 3", "three", "exit 3", "failed | exit-code | 1 | 3 | command exited with code 3"},
			{"SIGKILL", "killed", "kill -KILL $$", "failed | signal | 2 | 9 | command was killed by SIGKILL"},
			{"SIGTERM of its own", "term", "kill -TERM $$", "failed | signal | 2 | 15 | command was killed by SIGTERM"},
		} {
			d.run(row.id, "--", "sh", "-c", row.does)
			d.until(row.id, "completed,failed")
			assert.Equal(t, row.want, d.result(row.id), row.name)
		}

		d.run("long", "-p", "RuntimeMaxSec=1", "--", "sleep", "1000")
		d.until("long", "failed")
		assert.True(t, strings.HasPrefix(d.result("long"), "failed | timeout | "), d.result("long"))

		for id, command := range map[string]string{"missing": "/no/such/program", "text": text} {
			out, code := d.try("corralctl", "run", "--id", id, "--", command)
			assert.Equal(t, 1, code, out)
			assert.Contains(t, out, command)
			out, code = d.try("corralctl", "show", id)
			assert.Equal(t, 4, code, "it leaves no session: %s", out)
			d.run(id, "--no-start", "--", command)
			_, code = d.try("corralctl", "start", id)
			assert.Equal(t, 1, code)
			assert.True(t, strings.HasPrefix(d.result(id), "failed | start-failed | 0 | 0 | command "), d.result(id))
		}
		out, code := d.try("corralctl", "run", "--id", "nowhere", "--dir", "/no/such/dir", "--", "true")
		assert.Equal(t, 1, code)
		assert.Contains(t, out, "/no/such/dir")
	})
}

// TestScope_ContainsAllProcesses checks that every process of a session is in its scope, wherever
// tmux would move it, and that kills of single processes are reported correctly.
func TestScope_ContainsAllProcesses(t *testing.T) {
	onEach(t, func(t *testing.T, d *desk) {
		for _, id := range []string{"one", "two", "three", "four"} {
			d.run(id, "--", "sh", "-c", "setsid sleep 1000 & exec sleep 2000")
			scope := "app-corral-command-" + id + ".scope"
			group := strings.TrimPrefix(d.property(id, "ControlGroup"), "s ")
			members := d.do("systemctl", "--user", "show", "-p", "TasksCurrent,ControlGroup", scope)
			assert.Contains(t, members, scope)
			inside := d.do("cat", "/proc/"+d.pid(id)+"/cgroup")
			assert.Contains(t, inside, strings.Trim(group, `"`), "the agent's control group")
		}
		// A pane that a user opens is in the scope as well.
		socket := d.do("sh", "-c", "echo $XDG_RUNTIME_DIR/corral/one/tmux")
		opened := d.do("tmux", "-S", socket, "new-window", "-P", "-F", "#{pane_pid}", "sleep 3000")
		assert.Contains(t, d.do("cat", "/proc/"+opened+"/cgroup"), "app-corral-command-one.scope")

		before := d.pid("two")
		server := d.do("tmux", "-S", strings.Replace(socket, "/one/", "/two/", 1), "display-message", "-p", "#{pid}")
		d.do("kill", "-KILL", server)
		d.until("two", "stale")
		assert.Equal(t, "stale | session-lost | 0 | 0 | scope running, session dead", d.result("two"))
		assert.Equal(t, before, d.pid("two"), "the agent lives on")
		d.do("kill", "-0", before)

		shim := d.do("tmux", "-S", strings.Replace(socket, "/one/", "/three/", 1), "display-message", "-p", "#{pane_pid}")
		d.do("kill", "-KILL", shim)
		d.until("three", "failed")
		assert.Equal(t, "failed | agent-lost | 0 | 0 | shell process exited", d.result("three"))

		d.do("systemctl", "--user", "kill", "-s", "KILL", "app-corral-command-four.scope")
		d.until("four", "failed")
		assert.Equal(t, "failed | session-lost | 0 | 0 | tmux session no longer exists", d.result("four"))
		assert.Equal(t, `s "running"`, d.property("one", "State"), "the others are untouched")

		d.do("corralctl", "stop", "one", "two", "three")
		left, _ := d.try("pgrep", "-u", d.user, "-x", "sleep")
		assert.Empty(t, left, "processes that a stop has left behind")
	})
}

// TestSystemctlStop_IsGraceful checks that systemctl stop is as graceful as corralctl stop.
func TestSystemctlStop_IsGraceful(t *testing.T) {
	onEach(t, func(t *testing.T, d *desk) {
		agent := d.write("agent", `#!/bin/sh
trap 'echo bye > $HOME/output; exit 0' TERM
> $HOME/ready
while :; do sleep 0.1; done
`)
		d.run("polite", "--", agent)
		d.waitFile("/home/ann/ready")
		d.do("systemctl", "--user", "stop", "app-corral-command-polite.scope")
		d.until("polite", "stopped")
		assert.Equal(t, "bye", d.do("cat", "/home/ann/output"))
		assert.Equal(t, "i 1", d.property("polite", "ExecMainCode"))
		assert.Equal(t, "i 0", d.property("polite", "ExecMainStatus"))

		d.run("shell", "--", "bash", "-i")
		d.do("corralctl", "stop", "shell")
		assert.Equal(t, `s "stopped"`, d.property("shell", "State"))
	})
}

// TestService checks that the daemon is started on demand, reports the sessions in its status,
// adopts its sessions after a restart, and leaves them running when it stops.
func TestService(t *testing.T) {
	onEach(t, func(t *testing.T, d *desk) {
		d.run("first", "--", "sleep", "1000") // D-Bus activation starts corrald
		d.run("second", "--", "sh", "-c", "exit 3")
		d.until("second", "failed")
		status := d.do("systemctl", "--user", "status", "--no-pager", "corrald")
		assert.Contains(t, status, `"1 running, 1 failed"`)

		pid := d.pid("first")
		d.run("late", "--", "sh", "-c", "while ! [ -e go ]; do sleep 0.1; done; exit 5")
		d.do("systemctl", "--user", "stop", "corrald")
		d.do("touch", "go")
		d.waitFile("/home/ann/.local/state/corral/sessions/late/exit_status")
		d.do("systemctl", "--user", "start", "corrald")
		assert.Equal(t, pid, d.pid("first"))
		assert.Equal(t, `s "running"`, d.property("first", "State"))
		assert.Equal(t, "failed | exit-code | 1 | 5 | command exited with code 5", d.result("late"))

		journal := d.do("journalctl", "--user", "--no-pager", "-o", "cat", "-u", "app-corral-command-second.scope")
		assert.Regexp(t, `(?m)^second: (starting|running) -> failed \(command exited with code 3\)$`, journal, "our records stand beside systemd's")

		out, code := d.try("corrald")
		assert.Equal(t, 1, code)
		assert.Contains(t, out, "another corrald is running")

		d.do("sh", "-ec", `mkdir -p ~/.config/corral/agents; printf '[Agent]\nCommand=true\n' >~/.config/corral/agents/fresh.agent`)
		d.do("systemctl", "--user", "reload", "corrald")
		assert.Contains(t, d.do("corralctl", "agents"), "fresh", "the configuration was read when the reload returned")
		assert.NotContains(t, d.Run("journalctl", "--no-pager", "-b"), "Failed to parse", "of our units")
	})
}

// TestJournal_LogsFailuresAsErrors checks the journal records of agents as other programs read
// them: only failures have priority err.
func TestJournal_LogsFailuresAsErrors(t *testing.T) {
	onEach(t, func(t *testing.T, d *desk) {
		for id, does := range map[string]string{
			"code": "echo out; exit 3", "signal": "echo out; kill -SEGV $$", "well": "exit 0", "stopped": "exec sleep 1000",
		} {
			d.run(id, "--", "sh", "-c", "ulimit -c 0; "+does)
		}
		d.do("corralctl", "stop", "stopped")
		for _, id := range []string{"code", "signal", "well", "stopped"} {
			d.until(id, "completed,failed,stopped")
		}
		type record map[string]any
		records := func(id string, options ...string) (all []record) {
			t.Helper()
			command := []string{"journalctl", "--user", "--no-pager", "-o", "json", "CORRAL_SESSION=" + id}
			for line := range strings.Lines(d.do(append(command, options...)...)) {
				var r record
				require.NoError(t, json.Unmarshal([]byte(line), &r), line)
				all = append(all, r)
			}
			return all
		}
		for id, want := range map[string]record{
			"code":   {"CORRAL_RESULT": "exit-code", "CORRAL_EXIT_CODE": "3"},
			"signal": {"CORRAL_RESULT": "signal", "CORRAL_SIGNAL": "SIGSEGV"},
		} {
			found := records(id, "-p", "err")
			require.Len(t, found, 1, id)
			got := found[0]
			want["PRIORITY"], want["CORRAL_STATE"], want["CORRAL_SESSION"], want["CORRAL_AGENT"] = "3", "failed", id, "command"
			want["USER_UNIT"], want["MESSAGE_ID"] = "app-corral-command-"+id+".scope", "02e357a99bbf411f87191804ef76c8c1"
			for field, value := range want {
				assert.Equal(t, value, got[field], "%s of %s", field, id)
			}
			assert.Regexp(t, "^"+id+`: (starting|running) -> failed \(command (exited with code 3|was killed by SIGSEGV)\)$`, got["MESSAGE"])
			at, err := time.Parse(time.RFC3339Nano, fmt.Sprint(got["CORRAL_LAST_ACTIVITY"]))
			require.NoError(t, err)
			written := d.do("stat", "-c", "%.6Y", "/home/ann/.local/state/corral/sessions/"+id+"/output.log")
			assert.Equal(t, written, fmt.Sprintf("%.6f", float64(at.UnixMicro())/1e6), "of %s", id)
		}
		for _, id := range []string{"well", "stopped"} {
			assert.Empty(t, records(id, "-p", "warning"), id)
			assert.NotEmpty(t, records(id), id)
		}
		d.Run("journalctl", "--update-catalog")
		explained := d.do("journalctl", "--user", "--no-pager", "-x", "-p", "err", "CORRAL_SESSION=code")
		assert.Contains(t, explained, "Session code is now failed")
		assert.NotRegexp(t, "@[A-Z_]+@", explained)
	})
}

// waitFile waits until a file exists.
func (d *desk) waitFile(path string) {
	d.t.Helper()
	d.do("timeout", "30", "sh", "-c", `until [ -e "$1" ]; do sleep 0.05; done`, "sh", path)
}

// TestPrivacy_OtherUsersCannotReadState checks that another user can neither read nor use anything
// of a session.
func TestPrivacy_OtherUsersCannotReadState(t *testing.T) {
	onEach(t, func(t *testing.T, d *desk) {
		d.run("secret", "-E", "TOKEN=sesame-open", "--", "sleep", "1000")
		eve := d.User("eve")
		uid := d.do("id", "-u")
		for _, args := range [][]string{
			{"ls", "/home/ann/.local/state/corral"},
			{"ls", "/run/user/" + uid + "/corral"},
			{"tmux", "-S", "/run/user/" + uid + "/corral/secret/tmux", "list-sessions"},
			{"busctl", "--address=unix:path=/run/user/" + uid + "/bus", "tree", "io.github.corrald.Corral1"},
		} {
			out, err := d.Command(eve, args...).CombinedOutput()
			require.Error(t, err, "%v: %s", args, out)
		}
		seen := d.As(eve, "sh", "-c", "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'")
		assert.NotContains(t, seen, "sesame-open")
		open := d.do("find", "/home/ann/.local/state/corral", "/run/user/"+uid+"/corral", "-perm", "/077")
		assert.Empty(t, open, "files that others may use")
	})
}
