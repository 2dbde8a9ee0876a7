package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/testbed"
)

// installSandbox installs the sandbox profile that is shipped, and a workspace with a git
// repository.
func (d *corrald) installSandbox(t *testing.T) (workspace string) {
	t.Helper()
	profile, err := os.ReadFile("../../sandboxes/workspace.sandbox")
	require.NoError(t, err)
	d.write("config/corral/sandboxes/workspace.sandbox", string(profile))
	require.NoError(t, d.manager("Reload", nil))
	workspace = filepath.Join(d.dir, "work")
	require.NoError(t, os.MkdirAll(workspace, 0o700))
	out, err := exec.Command("git", "init", "-q", workspace).CombinedOutput()
	require.NoError(t, err, string(out))
	return workspace
}

// hostile tries everything that leads out of a sandbox, and prints what it succeeds in. Its
// arguments are the home directory, the runtime directory of Corral, the state directory of Corral,
// the process and the control group of another session's agent, and corralctl.
const hostile = `#!/bin/bash
home=$1 run=$2 state=$3 victim=$4 group=$5 ctl=$6
exec 2>/dev/null
try() { if timeout 5 "${@:2}" >/dev/null </dev/null; then echo "$1"; fi; }
put() { echo x >"$1"; }
export -f put
sh() { try "$1" bash -c "$2"; }
export DBUS_SESSION_BUS_ADDRESS=unix:path=${run%/corral}/bus
connect() { try "$1" python3 -c 'import socket, sys
s = socket.socket(socket.AF_UNIX, int(sys.argv[2])); s.connect(sys.argv[1])' "$2" "$3"; }
try 'call the user bus' busctl --user list
try 'start a service' systemd-run --user --wait true
try 'see other sessions' $ctl status victim
try 'type into another session' $ctl send victim hello
connect 'connect to the bus' ${run%/corral}/bus 1
connect 'connect to a shim' $run/victim/shim.sock 5
connect 'connect to a tmux server' $run/victim/tmux 1
connect 'connect to a socket in /tmp' $(ls -d /tmp/corral-sandbox-*/socket) 1
try 'read the log of another session' cat $state/sessions/victim/output.log
sh 'forge a record' "put $state/sessions/victim/exit_status"
sh 'leave a report for another session' "put $run/victim/report"
try 'see its process' test -e /proc/$victim
try 'signal its process' kill -0 $victim
try 'read its environment' grep -qz . /proc/$victim/environ
try 'trace its process' python3 -c 'import ctypes, sys
if ctypes.CDLL(None).ptrace(16, int(sys.argv[1]), 0, 0) != 0: sys.exit(1)' $victim
try 'trace the first process' test -r /proc/1/environ
sh 'join its control group' "echo \$\$ >/sys/fs/cgroup$group/cgroup.procs"
sh 'create a control group' "mkdir /sys/fs/cgroup$(sed -n s/^0:://p /proc/self/cgroup)/new"
sh 'raise its limits' "echo max >/sys/fs/cgroup$(sed -n s/^0:://p /proc/self/cgroup)/memory.max"
try 'read a key' cat $home/.ssh/id
sh 'write to a start-up file' "put $home/.bashrc"
sh 'install a service' "mkdir -p $home/.config/systemd/user && put $home/.config/systemd/user/evil.service"
sh 'change the configuration of Corral' "put $home/config/corral/sandboxes/workspace.sandbox"
sh 'install a program' "mkdir -p $home/.local/bin && put $home/.local/bin/evil"
sh 'put a hook' "put $home/work/.git/hooks/post-commit"
sh 'configure git' "put $home/work/.git/config"
try 'remount in a new namespace' unshare -Urm bash -c "mount -o remount,rw,bind / && put $home/evil"
try 'unmount in a new namespace' unshare -Urm bash -c "umount /tmp && test -e /tmp/corral-sandbox-*/socket"
sh 'see a disk' "ls /dev | grep -E '^([sv]d|nvme|dm-|loop|mem|kmsg)'"
echo end
sleep 1000
`

// TestSandbox_KeepsOut runs a hostile program in a sandbox, and, as a check of the program,
// outside.
func TestSandbox_KeepsOut(t *testing.T) {
	d := startDaemon(t, "AgentsMayControl=all") // the sandbox alone keeps it out
	workspace := d.installSandbox(t)
	victim := d.create(t, "victim", d.witness("victim"))
	pid := d.waitAgents(t, "victim", 1)
	d.write(".ssh/id", "key")
	d.write("hostile", hostile)
	elsewhere, err := os.MkdirTemp("/tmp", "corral-sandbox-") //nolint:usetesting // it has to be in /tmp
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(elsewhere) })
	socket, err := net.Listen("unix", filepath.Join(elsewhere, "socket"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = socket.Close() })
	attack := func(id, sandbox string) (s *testSession, succeeded []string) {
		s = d.create(t, id, spec{
			"Command": []string{
				"bash", d.dir + "/hostile", d.dir, filepath.Dir(d.runtimeDir("x")), d.dir + "/state/corral",
				strconv.Itoa(pid[0]), victim.properties().text("ControlGroup"), testbed.Programs(t).Corralctl,
			},
			"WorkingDirectory": workspace, "Sandbox": sandbox,
		})
		out := testbed.WaitFile(t, filepath.Join(d.stateDir(id), "output.log"), func(content []byte) bool {
			return strings.Contains(string(content), "end\r\n")
		})
		return s, strings.Split(strings.TrimSpace(strings.ReplaceAll(string(out), "\r", "")), "\n")
	}
	s, succeeded := attack("inside", "workspace")
	assert.Equal(t, []string{"end"}, succeeded)
	assert.Equal(t, []string{"workspace", "bubblewrap", "open"}, []string{
		s.properties().text("Sandbox"), s.properties().text("SandboxTool"), s.properties().text("SandboxNetwork"),
	})
	s.must("Stop", uint64(0))
	victim.assertOutcome(outcome{"running", "", 0, 0, "", "active"})

	_, succeeded = attack("outside", "none")
	for _, attempt := range []string{
		"call the user bus", "start a service", "see other sessions", "type into another session", "connect to the bus",
		"connect to a shim", "connect to a tmux server", "connect to a socket in /tmp", "read the log of another session",
		"see its process", "signal its process", "read its environment", "read a key", "write to a start-up file",
		"put a hook", "configure git", "install a service", "change the configuration of Corral",
	} {
		assert.Contains(t, succeeded, attempt, "the attempt does not work outside of a sandbox")
	}
}

// TestSandbox_HooksReport: hooks in a sandbox have no bus, and report all the same, also while no
// daemon answers.
func TestSandbox_HooksReport(t *testing.T) {
	d := startDaemon(t)
	workspace := d.installSandbox(t)
	pass, open := d.gate(t, "on")
	ctl := testbed.Programs(t).Corralctl
	s := d.create(t, "shop", spec{
		"Command": []string{"sh", "-c", ctl + " report waiting --reason=permission --message='May I?' || touch failed; " +
			pass + "; " + ctl + " report working || touch failed; touch over; exec sleep 1000"},
		"WorkingDirectory": workspace, "Sandbox": "workspace",
	})
	p := s.waitAttention("permission", "waiting")
	assert.Equal(t, []string{"May I?", "report"}, []string{p.text("AttentionMessage"), p.text("AttentionSource")})
	d.kill(syscall.SIGKILL)
	open()
	testbed.WaitFile(t, filepath.Join(workspace, "over"), nil)
	d.launch()
	s.waitAttention("", "working")
	assert.NoFileExists(t, filepath.Join(workspace, "failed"))
}

// TestSandbox_IsThatOfTheSession: each run has the sandbox with which the session was created, or
// does not start.
func TestSandbox_IsThatOfTheSession(t *testing.T) {
	d := startDaemon(t)
	workspace := d.installSandbox(t)
	const records = `echo $CORRAL_SANDBOX $TOOL_HOME >>runs; exec sleep 1000'`
	d.defineAgent(t, "tool", "Command=sh -c 'test ! -e "+d.dir+"/.ssh/id || echo leak >>runs; "+records,
		"Sandbox=workspace", "[Sandbox]", "Default=TOOL_HOME=/tool")
	d.write(".ssh/id", "key")
	s, err := d.createWithAgent(t, "tool", "shop", spec{"WorkingDirectory": workspace})
	require.NoError(t, err)
	runs := func(want string) {
		t.Helper()
		testbed.WaitFile(t, filepath.Join(workspace, "runs"), func(content []byte) bool { return string(content) == want })
	}
	runs("workspace /tool\n")
	s.must("Stop", uint64(0))

	profile := "config/corral/sandboxes/workspace.sandbox"
	d.write(profile, "[Sandbox]\nColour=red\n")
	require.NoError(t, d.manager("Reload", nil))
	err = s.do("Start")
	assertRefused(t, err, dbusapi.StartFailed, `no usable sandbox profile "workspace"; usable are: none`)
	_, err = d.createWithAgent(t, "tool", "new", spec{"WorkingDirectory": workspace})
	assertRefused(t, err, dbusapi.ConfigError, `agent "tool": Sandbox=: no usable sandbox profile "workspace"`)
	_, err = d.createWithAgent(t, "tool", "new", spec{"WorkingDirectory": workspace, "Sandbox": "other"})
	assertRefused(t, err, dbusapi.InvalidArgs, `invalid Sandbox: no usable sandbox profile "other"`)

	d.installSandbox(t)
	d.defineAgent(t, "tool", "Command=sh -c '"+records)
	s.must("Start") // the definition has none any more, but the session has
	runs("workspace /tool\nworkspace\n")

	none, err := d.createWithAgent(t, "tool", "none", spec{"WorkingDirectory": workspace, "Sandbox": "none"})
	require.NoError(t, err)
	assert.Empty(t, none.properties().text("Sandbox"))
	runs("workspace /tool\nworkspace\n\n")

	// Another workspace is refused by the sandbox, and nothing runs.
	_, err = d.createWithAgent(t, "tool", "home", spec{"Sandbox": "workspace"})
	assertRefused(t, err, dbusapi.StartFailed, "cannot be writable in a sandbox: it contains")
}

// TestSandbox_Supervision: a daemon that is killed finds the agent again, also without its record;
// a stop of all processes ends it as its agent wants.
func TestSandbox_Supervision(t *testing.T) {
	d := startDaemon(t)
	workspace := d.installSandbox(t)
	asked := spec{
		"Command":          []string{"sh", "-c", "trap 'exit 7' TERM; touch ready; while :; do sleep 0.05; done"},
		"WorkingDirectory": workspace, "Sandbox": "workspace",
	}
	s := d.create(t, "shop", asked)
	testbed.WaitFile(t, filepath.Join(workspace, "ready"), nil)
	before := s.properties()
	d.kill(syscall.SIGKILL)
	require.NoError(t, os.RemoveAll(d.stateDir("shop")))
	d.launch()
	after := s.properties()
	for _, property := range []string{"MainPID", "Sandbox", "SandboxTool", "ControlGroup", "WorkingDirectory"} {
		assert.Equal(t, before[property], after[property], property)
	}
	s.must("Kill", "all", int32(syscall.SIGTERM))
	s.waitOutcome(outcome{"failed", "exit-code", 1, 7, "command exited with code 7", "error"})
	require.NoError(t, os.Remove(filepath.Join(workspace, "ready")))
	s.must("Start")
	testbed.WaitFile(t, filepath.Join(workspace, "ready"), nil)
	s.must("Stop", uint64(0))
	s.assertOutcome(outcome{"stopped", "success", 1, 7, "", "active"})
	assert.Empty(t, s.properties().text("ControlGroup"))
}

// TestSandbox_ForbiddenFile: an agent that redirects git is killed, and the session has the reason.
func TestSandbox_ForbiddenFile(t *testing.T) {
	d := startDaemon(t)
	workspace := d.installSandbox(t)
	s := d.create(t, "shop", spec{
		"Command":          []string{"sh", "-c", "sleep 0.2; echo /tmp >.git/commondir; sleep 1000"},
		"WorkingDirectory": workspace, "Sandbox": "workspace",
	})
	forbidden := workspace + "/.git/commondir"
	s.waitOutcome(outcome{"failed", "signal", 2, 9, `command was killed by SIGKILL: it created "` + forbidden +
		`", with which it could leave its sandbox`, "error"})
	assert.NoFileExists(t, forbidden)
}

// TestSandbox_Wrapper: another tool is run with the command of the agent as its arguments.
func TestSandbox_Wrapper(t *testing.T) {
	d := startDaemon(t)
	d.write("config/corral/sandboxes/other.sandbox", "[Sandbox]\nWrapper=env WRAPPED=%w nice -n 5\nUnset=SSH_*\n")
	d.write("config/corral/sandboxes/missing.sandbox", "[Sandbox]\nWrapper=no-such-tool\n")
	require.NoError(t, d.manager("Reload", nil))
	s := d.create(t, "shop", spec{
		"Command": []string{"sh", "-c", `echo "$WRAPPED $CORRAL_SANDBOX ${SSH_AUTH_SOCK-unset} $(nice)" >out; exit 3`},
		"Sandbox": "other",
	})
	s.waitOutcome(outcome{"failed", "exit-code", 1, 3, "command exited with code 3", "error"})
	assert.Equal(t, d.dir+" other unset 5\n", readFile(t, d.dir+"/out"))
	assert.Equal(t, "env", s.properties().text("SandboxTool"))
	_, err := d.tryCreate(t, "lost", spec{"Command": []string{"true"}, "Sandbox": "missing"})
	assertRefused(t, err, dbusapi.StartFailed, `command "no-such-tool" not found`)
}
