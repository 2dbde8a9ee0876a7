package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/testbed"
)

// defineScript adds an agent that consists of a bash script below the daemon's home and a
// definition that runs it.
func (d *corrald) defineScript(name, definition, script string) {
	d.t.Helper()
	d.write(name, script)
	d.write("config/corral/agents/"+name+".agent", definition)
	require.NoError(d.t, d.manager("Reload", nil))
}

// createWithAgent creates a session of an agent, and starts it unless sp has Start=false.
func (d *corrald) createWithAgent(t *testing.T, agent, id string, sp spec) (*testSession, error) {
	t.Helper()
	if sp == nil {
		sp = spec{}
	}
	sp["Id"] = id
	if sp["WorkingDirectory"] == nil {
		sp["WorkingDirectory"] = d.dir
	}
	var path dbus.ObjectPath
	err := d.manager("CreateSession", []any{agent, sp.variants()}, &id, &path)
	return &testSession{d, t, id}, err
}

// waitRuns waits until n agents of the session were executed, and returns the arguments of each.
func (s *testSession) waitRuns(n int) []string {
	s.t.Helper()
	content := testbed.WaitFile(s.t, s.dir+"/"+s.id+".runs", func(content []byte) bool {
		return strings.Count(string(content), "\n") >= n
	})
	return strings.Split(strings.TrimSpace(string(content)), "\n")
}

// talker is an agent like Claude Code: it accepts a new conversation id, or resumes a conversation
// of which it has saved something, namely the lines that it has read.
const (
	talker = `[Agent]
Command=bash %h/talker --session-id %U
ResumeCommand=bash %h/talker --resume %U
ResumeCondition=${TALKER_HOME}/*/%U.jsonl %h/talks/*/%U.jsonl
ResumeContent=hello
IdSource=preset
IdPattern=talker --resume ([0-9a-f-]{36})
`
	talkerScript = `
home=$(dirname "$0"); talk=$home/talks/shop/$2.jsonl; mkdir -p "$home/talks/shop"
case $1 in
--session-id) [ ! -e "$talk" ] || { echo "Session ID $2 is already in use"; exit 1; } ;;
--resume) [ -e "$talk" ] || { echo "No conversation found with session ID: $2"; exit 1; } ;;
esac
trap 'printf "\033[2mResume this session with:\033[0m\r\ntalker \033[1m--resume %s\033[m\r\n" "$2"; exit 0' TERM
echo "$1 $2" >>"$home/$CORRAL_SESSION.runs"
printf 'talks'; while read -r line; do echo "$line" >>"$talk"; echo read >>"$home/$CORRAL_SESSION.read"; done
`
)

func TestConversation_IsResumedIfSaved(t *testing.T) {
	d := startDaemon(t)
	d.defineScript("talker", talker, talkerScript)
	s, err := d.createWithAgent(t, "talker", "shop", nil)
	require.NoError(t, err)
	id := s.properties().text("ConversationId")
	require.Regexp(t, `^[0-9a-f-]{36}$`, id)
	assert.Equal(t, []string{"--session-id " + id}, s.waitRuns(1))

	again := func() properties {
		t.Helper()
		kill(t, s.properties().number("MainPID"), syscall.SIGKILL)
		s.waitState("failed")
		s.must("Resume")
		return s.properties()
	}
	p := again()
	assert.False(t, p.isTrue("Resumed"), "it never got any input")
	assert.Equal(t, "--session-id "+id, s.waitRuns(2)[1], "the id is the same")
	assert.Contains(t, d.log.String(), "no conversation was saved; the agent starts a new one")

	s.sendLine("hello")
	s.awaitFile("shop.read")
	p = again()
	assert.True(t, p.isTrue("Resumed"))
	assert.Equal(t, id, p.text("ConversationId"))
	assert.Equal(t, "--resume "+id, s.waitRuns(3)[2])

	s.must("Restart")
	fresh := s.properties().text("ConversationId")
	assert.NotEqual(t, id, fresh, "a fresh run is another conversation")
	assert.Equal(t, "--session-id "+fresh, s.waitRuns(4)[3])

	require.NoError(t, os.WriteFile(d.dir+"/talks/shop/"+fresh+".jsonl", []byte("a header\n"), 0o600))
	p = again()
	assert.False(t, p.isTrue("Resumed"))
	other := p.text("ConversationId")
	assert.NotEqual(t, fresh, other, "an empty file of the conversation exists and prevents a new one with its id")
	assert.Equal(t, "--session-id "+other, s.waitRuns(5)[4])
}

// TestConversation_IDSurvivesDaemonCrash checks that at no step of a start there is an agent whose
// conversation id is not on disk.
func TestConversation_IDSurvivesDaemonCrash(t *testing.T) {
	d := startDaemon(t)
	d.defineScript("talker", talker, talkerScript)
	for n, step := range startSteps[1:] {
		t.Run(step.point, func(t *testing.T) {
			id := fmt.Sprintf("known-%d", n)
			d.relaunchWithFailpoint(t, step.point)
			s, _ := d.createWithAgent(t, "talker", id, nil)
			d.waitKilled(t)
			d.launch()
			s.wait("not starting", func(p properties) bool { return p.text("State") != "starting" })
			conversation := s.properties().text("ConversationId")
			require.NotEmpty(t, conversation)
			if s.properties().text("State") == "failed" {
				s.must("Resume")
			}
			for _, run := range s.waitRuns(1) {
				assert.Equal(t, "--session-id "+conversation, run)
			}
			s.must("Stop", uint64(0))
		})
	}
}

func TestConversation_IsUsedByOneSessionAtATime(t *testing.T) {
	d := startDaemon(t)
	d.defineScript("talker", talker, talkerScript)
	first, err := d.createWithAgent(t, "talker", "first", nil)
	require.NoError(t, err)
	first.sendLine("hello")
	first.awaitFile("first.read")
	id := first.properties().text("ConversationId")
	taking := func(name string, start bool) (*testSession, error) {
		return d.createWithAgent(t, "talker", name, spec{"ConversationId": id, "Start": start})
	}
	_, err = taking("second", true)
	assertRefused(t, err, dbusapi.ConversationBusy, id, `"first"`)
	second, err := taking("second", false)
	require.NoError(t, err)
	assertRefused(t, second.do("Start"), dbusapi.ConversationBusy, id, `"first"`)

	d.kill(syscall.SIGKILL)
	d.launch()
	assertRefused(t, second.do("Start"), dbusapi.ConversationBusy, id, `"first"`)

	first.must("Stop", uint64(0))
	second.must("Start")
	assert.Equal(t, []string{"--resume " + id}, second.waitRuns(1),
		"a conversation whose id the client passes is resumed")
	assertRefused(t, first.do("Resume"), dbusapi.ConversationBusy, id, `"second"`)
	require.NoError(t, first.do("Start"), "a fresh run has a conversation of its own")
}

// TestLostRecord_IsRebuiltWithItsConversation checks that the conversation id is read from the
// agent's arguments.
func TestLostRecord_IsRebuiltWithItsConversation(t *testing.T) {
	d := startDaemon(t)
	d.defineScript("talker", talker, talkerScript)
	s, err := d.createWithAgent(t, "talker", "shop", nil)
	require.NoError(t, err)
	s.sendLine("hello")
	s.awaitFile("shop.read")
	id := s.properties().text("ConversationId")
	d.kill(syscall.SIGKILL)
	require.NoError(t, os.RemoveAll(d.stateDir("shop")))
	d.launch()
	assert.Equal(t, id, s.properties().text("ConversationId"))
	s.must("Suspend")
	s.must("Resume")
	assert.Equal(t, []string{"--session-id " + id, "--resume " + id}, s.waitRuns(2))
}

// TestConversation_SharedByTwoSessionsIsReported checks that two running sessions found to have the
// same conversation are reported as problems, and keep running.
func TestConversation_SharedByTwoSessionsIsReported(t *testing.T) {
	d := startDaemon(t)
	d.defineScript("keeper", keeper, keeperScript)
	const id = "0f7a7a0e-0000-4000-8000-000000000001"
	for _, name := range []string{"left", "right"} {
		s, err := d.createWithAgent(t, "keeper", name, spec{"Environment": []string{"KEEPS=" + id}})
		require.NoError(t, err)
		s.sendLine("hello")
		s.wait("with a known conversation", func(p properties) bool { return p.text("ConversationId") == id })
	}
	problems := func() string {
		var value dbus.Variant
		require.NoError(t, d.call(dbusapi.ManagerPath, "org.freedesktop.DBus.Properties.Get",
			[]any{dbusapi.ManagerInterface, "Problems"}, &value))
		return fmt.Sprint(value.Value())
	}
	testbed.Poll(t, "both are reported", func() bool {
		text := problems()
		return strings.Contains(text, `"left" uses the same`) && strings.Contains(text, `"right" uses the same`)
	})
	right := &testSession{d, t, "right"}
	right.assertOutcome(outcome{"running", "", 0, 0, "", "active"})
	right.must("Stop", uint64(0))
	assert.NotContains(t, problems(), "uses the same")
}

// keeper is an agent like Codex: at the first prompt it chooses an id, and a child process opens a
// file named after it. It continues a conversation that already has an id.
const (
	keeper = `[Agent]
Command=bash %h/keeper
ResumeCommand=bash %h/keeper resume %U
ResumeCondition=${KEEPER_HOME}/sessions/*/rollout-*-%U.jsonl %h/sessions/*/rollout-*-%U.jsonl
IdSource=report
IdFile=/rollout-[^/]*-([0-9a-f]{8}-[0-9a-f-]{27})\.jsonl$
IdPattern=keeper resume ([0-9a-f-]{36})
`
	keeperScript = `
home=$(dirname "$0"); echo "run $*" >>"$home/$CORRAL_SESSION.runs"
[ "$KEEPS_OUTER" ] || { KEEPS_OUTER=1 bash "$0" "$@"; exit; }
day=$home/sessions/2026; mkdir -p "$day"; id=${2:-}
[ -z "$id" ] || exec 5>>"$day/rollout-1-$id.jsonl"
printf 'keeps'; while read -r line; do
  [ "$line" != new ] || { id=; KEEPS=; }
  [ "$id" ] || { id=${KEEPS:-$(cat /proc/sys/kernel/random/uuid)}; exec 5>>"$day/rollout-1-$id.jsonl"; }
  echo "$line" >&5
  case $line in
  title) sleep 1000 6>>"$day/rollout-2-00000000-0000-4000-8000-00000000dead.jsonl" & ;;
  bye) exec 5>&-; printf 'To continue, run \033[36mkeeper resume %s\033[0m\n' "$id"; exit 0 ;;
  esac
  echo "read $line"
done
`
)

// TestConversation_IsDetectedFromOpenFile checks that the id is known even if the agent is killed
// before it could report it.
func TestConversation_IsDetectedFromOpenFile(t *testing.T) {
	d := startDaemon(t, "IdleAfterSec=300ms")
	d.defineScript("keeper", keeper, keeperScript)
	s, err := d.createWithAgent(t, "keeper", "shop", nil)
	require.NoError(t, err)
	p := s.wait("idle", func(p properties) bool { return p.text("Activity") == "idle" })
	assert.Empty(t, p.text("ConversationId"))
	assert.False(t, p.isTrue("Resumable"))

	s.sendLine("hello")
	id := s.wait("with a known conversation", func(p properties) bool {
		return p.text("ConversationId") != ""
	}).text("ConversationId")
	s.sendLine("title")
	s.wait("idle", func(p properties) bool { return p.text("Activity") == "idle" })
	assert.Equal(t, id, s.properties().text("ConversationId"), "a conversation of a subprocess is not the session's")

	kill(t, s.properties().number("MainPID"), syscall.SIGKILL)
	s.waitState("failed")
	s.must("Resume")
	assert.True(t, s.properties().isTrue("Resumed"))
	assert.Contains(t, s.waitRuns(4)[2], "run resume "+id)

	s.sendLine("new")
	other := s.wait("in another conversation", func(p properties) bool {
		return p.text("ConversationId") != id
	}).text("ConversationId")
	s.must("Suspend")
	s.must("Resume")
	assert.Equal(t, "run resume "+other, s.waitRuns(6)[4])

	t.Run("a conversation without a file is started anew", func(t *testing.T) {
		s.must("Stop", uint64(0))
		require.NoError(t, os.RemoveAll(d.dir+"/sessions"))
		s.must("Resume")
		assert.False(t, s.properties().isTrue("Resumed"))
		assert.Equal(t, "run ", strings.TrimRight(s.waitRuns(8)[6], "\n")+"")
		assert.Equal(t, other, s.properties().text("ConversationId"), "the known id is kept")
	})
}

// changer is another agent like Codex: it keeps the files of conversations open that its user has
// left, and those of its subagents.
const (
	changer = `[Agent]
Command=bash %h/changer
ResumeCommand=bash %h/changer resume %U
IdSource=report
IdFile=/rollout-[^/]*-([a-z]+)\.jsonl$
IdFileContent=^[^\n]*"source":"
`
	changerScript = `
home=$(dirname "$0"); at=5
exec 5>>"$home/rollout-5-first.jsonl" 6>>"$home/rollout-6-helper.jsonl" 7>>"$home/rollout-4-second.jsonl"
echo '{"source":"user"}' >&5; echo '{"source":{"agent":1}}
{"source":"none"}' >&6
printf 'changes'; while read -r line; do
  case $line in
  helper) echo "$line" >&6 ;;
  [5-7]) at=$line; [ -s "$home/rollout-4-second.jsonl" ] || echo '{"source":"user"}' >&7 ;;
  esac
  case $at in 5) echo "$line" >&5 ;; 7) echo "$line" >&7 ;; esac
  echo "read $line"
done
`
)

// TestConversation_SwitchIsDetectedAmongOpenFiles checks that the conversation to which the agent
// has switched is the one that is resumed.
func TestConversation_SwitchIsDetectedAmongOpenFiles(t *testing.T) {
	d := startDaemon(t, "IdleAfterSec=300ms")
	d.defineScript("changer", changer, changerScript)
	s, err := d.createWithAgent(t, "changer", "shop", nil)
	require.NoError(t, err)
	is := func(id string) { s.wait(id, func(p properties) bool { return p.text("ConversationId") == id }) }
	is("first")
	s.sendLine("7")
	is("second")
	s.sendLine("helper")
	waitWritten(t, d.dir+"/rollout-4-second.jsonl", "helper\n")
	s.wait("idle", func(p properties) bool { return p.text("Activity") == "idle" && p.text("ConversationId") == "second" })
	s.sendLine("5")
	is("first")
	s.sendLine("7")
	waitWritten(t, d.dir+"/rollout-4-second.jsonl", "helper\n7\n")
	s.must("Suspend") // at once
	assert.Equal(t, "second", s.properties().text("ConversationId"))
}

// TestConversation_IsDetectedFromOutput checks that an id that was not known while the agent ran is
// read from the end of its output.
func TestConversation_IsDetectedFromOutput(t *testing.T) {
	d := startDaemon(t)
	definition := regexp.MustCompile(`(?m)^IdFile=.*\n`).ReplaceAllString(keeper, "")
	d.defineScript("keeper", definition, keeperScript)
	s, err := d.createWithAgent(t, "keeper", "shop", nil)
	require.NoError(t, err)
	s.sendLine("bye")
	s.waitState("completed")
	s.must("Resume") // at once: Resume waits until the output was searched
	p := s.properties()
	require.Regexp(t, `^[0-9a-f-]{36}$`, p.text("ConversationId"))
	assert.True(t, p.isTrue("Resumed"))
	assert.Equal(t, "run resume "+p.text("ConversationId"), s.waitRuns(3)[2])

	t.Run("by a daemon that started later", func(t *testing.T) {
		s, err := d.createWithAgent(t, "keeper", "unseen", nil)
		require.NoError(t, err)
		d.kill(syscall.SIGKILL)
		s.tmux("send-keys", "bye", "Enter")
		testbed.WaitFile(t, d.stateDir("unseen")+"/exit_status", func(content []byte) bool { return len(content) > 0 })
		d.launch()
		s.wait("with a known conversation", func(p properties) bool { return p.text("ConversationId") != "" })
	})
}

// creator is an agent like Cursor's: a command of it creates an empty conversation and prints its
// id.
const (
	creator = `[Agent]
Command=bash %h/creator --resume %U
ResumeCommand=bash %h/creator --resume %U
IdSource=create
IdCommand=bash %h/creator create-chat

[Environment]
Set=CREATOR=%i
`
	creatorScript = `
home=$(dirname "$0")
case $1 in
create-chat) echo "$PWD $CREATOR $TOKEN" >>"$home/made"
  [ "$TOKEN" ] || { echo 'Authentication required: secret-detail' >&2; exit 3; }
  [ "$TOKEN" != hangs ] || { sleep 1000 & echo $! >"$home/hangs"; wait; }
  echo 'a notice'; printf 'chat-%s\n\n' "$(wc -l <"$home/made")" ;;
--resume) echo "$2" >>"$home/$CORRAL_SESSION.runs"; printf creates; exec sleep 1000 ;;
esac
`
)

func TestConversation_IsCreatedBeforeTheRun(t *testing.T) {
	d := startDaemon(t)
	d.defineScript("creator", creator, creatorScript)
	work := filepath.Join(d.dir, "work shop")
	require.NoError(t, os.Mkdir(work, 0o700))
	s, err := d.createWithAgent(t, "creator", "shop", spec{"WorkingDirectory": work, "Environment": []string{"TOKEN=t"}})
	require.NoError(t, err)
	assert.Equal(t, "chat-1", s.properties().text("ConversationId"))
	assert.Equal(t, []string{"chat-1"}, s.waitRuns(1))
	assert.Equal(t, work+" shop t\n", readFile(t, d.dir+"/made"), "in the session's workspace and environment")
	s.must("Suspend")
	s.must("Resume")
	assert.Equal(t, []string{"chat-1", "chat-1"}, s.waitRuns(2))
	s.must("Restart")
	assert.Equal(t, "chat-2", s.waitRuns(3)[2])

	t.Run("a failure is reported, and nothing is started", func(t *testing.T) {
		s, err := d.createWithAgent(t, "creator", "anonymous", nil)
		assertRefused(t, err, dbusapi.StartFailed, "cannot create a conversation", "exit status 3")
		assert.NotContains(t, fmt.Sprint(err), "secret-detail")
		assert.NotContains(t, d.log.String(), "secret-detail")
		s.waitState("failed")
		assert.NoFileExists(t, d.dir+"/anonymous.runs")
	})
	t.Run("a stop does not wait for the creation", func(t *testing.T) {
		go func() { _, _ = d.createWithAgent(t, "creator", "hangs", spec{"Environment": []string{"TOKEN=hangs"}}) }()
		testbed.WaitFile(t, d.dir+"/hangs", func(content []byte) bool { return len(content) > 1 })
		s := &testSession{d, t, "hangs"}
		s.must("Stop", uint64(0))
		assert.Equal(t, "stopped", s.properties().text("State"))
		var pid int
		_, err := fmt.Sscan(readFile(t, d.dir+"/hangs"), &pid)
		require.NoError(t, err)
		testbed.WaitExit(t, pid)
	})
}

func TestDaemonCrash_DuringConversationCreation(t *testing.T) {
	d := startDaemon(t)
	d.defineScript("creator", creator, creatorScript)
	for n, step := range conversationSteps {
		t.Run(step.point, func(t *testing.T) {
			id := fmt.Sprintf("made-%d", n)
			d.relaunchWithFailpoint(t, step.point)
			s, _ := d.createWithAgent(t, "creator", id, spec{"Environment": []string{"TOKEN=t"}})
			d.waitKilled(t)
			d.launch()
			s.wait(step.state, func(p properties) bool { return p.text("State") == step.state })
			if step.state == "failed" {
				s.must("Resume")
			}
			assert.Equal(t, []string{s.properties().text("ConversationId")}, s.waitRuns(1))
			s.must("Stop", uint64(0))
		})
	}
}

// oblivious is an agent like Gemini CLI: its outer process catches signals without acting on them,
// and exits when the inner process does.
const (
	oblivious = `[Agent]
Command=bash %h/oblivious
StopWhom=all
`
	obliviousScript = `
home=$(dirname "$0"); trap : TERM HUP INT
bash -c 'trap "exit 0" TERM; echo $$ >"$0.new"; mv "$0.new" "$0"; while :; do sleep 1000 & wait; done' "$home/$CORRAL_SESSION.inner" &
while kill -0 $! 2>/dev/null; do wait; done; exit 0
`
)

func TestStop_ReachesInnerProcesses(t *testing.T) {
	d := startDaemon(t)
	d.defineScript("oblivious", oblivious, obliviousScript)
	s, err := d.createWithAgent(t, "oblivious", "shop", nil)
	require.NoError(t, err)
	s.awaitFile("shop.inner")
	group, asked := s.properties().text("ControlGroup"), time.Now()
	s.must("Stop", uint64(0))
	assert.Less(t, time.Since(asked), 5*time.Second, "long before the stop time-out")
	s.assertOutcome(outcome{"stopped", "success", 1, 0, "", "active"})
	assert.NoDirExists(t, "/sys/fs/cgroup"+group)

	t.Run("within TimeoutStopSec= if the agent ignores all signals", func(t *testing.T) {
		d.defineScript("deafer", "[Agent]\nCommand=bash %h/deafer\n[Scope]\nTimeoutStopSec=1500ms\n",
			`trap '' TERM HUP INT; echo up >"$(dirname "$0")/deafer.up"; while :; do sleep 1000; done`)
		s, err := d.createWithAgent(t, "deafer", "deafer", nil)
		require.NoError(t, err)
		s.awaitFile("deafer.up")
		asked := time.Now()
		s.must("Stop", uint64(0))
		assert.Less(t, time.Since(asked), 8*time.Second)
		s.assertOutcome(outcome{"stopped", "success", 2, int(syscall.SIGKILL), "", "active"})
	})
}

// TestManual_ExampleAgentWorks checks that the manual's example of a five-line agent definition
// works unchanged.
func TestManual_ExampleAgentWorks(t *testing.T) {
	page, err := os.ReadFile("../../docs/man/corral.agent.5.md")
	require.NoError(t, err)
	_, example, found := strings.Cut(string(page), "*~/.config/corral/agents/mine.agent*:\n\n```\n")
	require.True(t, found)
	example, _, _ = strings.Cut(example, "```")
	assert.LessOrEqual(t, strings.Count(example, "\n"), 5)
	d := startDaemon(t)
	bin := filepath.Join(d.dir, "bin")
	require.NoError(t, os.Mkdir(bin, 0o700))
	program := "#!/bin/bash\n" + talkerScript
	require.NoError(t, os.WriteFile(bin+"/my-agent", []byte(program), 0o700))
	d.write("config/corral/agents/mine.agent", example)
	require.NoError(t, d.manager("Reload", nil))
	path := spec{"Environment": []string{"PATH=" + bin + ":" + os.Getenv("PATH")}}
	s, err := d.createWithAgent(t, "mine", "shop", path)
	require.NoError(t, err)
	id := s.properties().text("ConversationId")
	runs := func(n int) string {
		return string(testbed.WaitFile(t, bin+"/shop.runs", func(content []byte) bool {
			return strings.Count(string(content), "\n") == n
		}))
	}
	runs(1)
	s.must("Suspend")
	require.NoError(t, os.WriteFile(bin+"/talks/shop/"+id+".jsonl", nil, 0o600))
	s.must("Resume")
	assert.Equal(t, "--session-id "+id+"\n--resume "+id+"\n", runs(2))
	assert.NotContains(t, d.log.String(), "mine.agent", "no line of it is reported as invalid")
	var rows []dbusapi.AgentRow
	require.NoError(t, d.manager("ListAgents", nil, &rows))
	assert.True(t, slices.ContainsFunc(rows, func(r dbusapi.AgentRow) bool {
		return r.Name == "mine" && r.Details["Available"].Value() == false
	}), "not found in the manager's PATH")
}
