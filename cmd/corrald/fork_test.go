package main

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
)

// forker is an agent that saves a conversation, and a copy of one, at its first line of input.
const (
	forker = `[Agent]
Command=bash %h/forker --session-id %U
ResumeCommand=bash %h/forker --resume %U
ForkCommand=bash %h/forker --fork %U %F
ResumeCondition=%h/talks/%U
IdSource=preset
`
	forkerScript = `
home=$(dirname "$0"); mkdir -p "$home/talks"; echo "$*" >>"$home/$CORRAL_SESSION.runs"
printf talks; while read -r line; do
	[ "$1" != --fork ] || [ -e "$home/talks/$2" ] || cp "$home/talks/$3" "$home/talks/$2"
	echo "$line" >>"$home/talks/$2"; echo read >>"$home/$CORRAL_SESSION.read"
done
`
)

func TestFork_CopiesTheConversation(t *testing.T) {
	d := startDaemon(t)
	d.write("config/corral/sandboxes/other.sandbox", "[Sandbox]\nWrapper=env\n")
	d.defineScript("forker", forker, forkerScript)
	workspace := t.TempDir()
	source, err := d.createWithAgent(t, "forker", "source", spec{
		"WorkingDirectory": workspace, "Sandbox": "other", "Environment": []string{"A=source", "B=source"},
	})
	require.NoError(t, err)
	source.sendLine("hello")
	source.awaitFile("source.read")
	original := source.properties().text("ConversationId")

	copied, err := d.createWithAgent(t, "forker", "copy", spec{
		"ForkedFrom": "source", "WorkingDirectory": "", "Environment": []string{"B=copy"},
	})
	require.NoError(t, err)
	p := copied.properties()
	id := p.text("ConversationId")
	assert.NotEqual(t, original, id)
	assert.Equal(t, "source", p.text("ForkedFrom"))
	assert.Equal(t, workspace, p.text("WorkingDirectory"))
	assert.Equal(t, "other", p.text("Sandbox"))
	assert.Equal(t, []string{"--fork " + id + " " + original}, copied.waitRuns(1))
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.number("MainPID")))
	require.NoError(t, err)
	assert.Contains(t, string(environ), "A=source\x00")
	assert.Contains(t, string(environ), "B=copy\x00")

	again := func() {
		kill(t, copied.properties().number("MainPID"), syscall.SIGKILL)
		copied.waitState("failed")
		copied.must("Resume")
	}
	d.kill(syscall.SIGKILL)
	d.launch()
	again()
	assert.Equal(t, "--fork "+id+" "+original, copied.waitRuns(2)[1], "nothing was said in it yet")
	copied.sendLine("bye")
	copied.awaitFile("copy.read")
	source.must("Stop", uint64(0))
	require.NoError(t, d.manager("RemoveSession", []any{"source", uint64(0)}))
	again()
	assert.Equal(t, "--resume "+id, copied.waitRuns(3)[2])
	for name, want := range map[string]string{id: "hello\nbye\n", original: "hello\n"} {
		text, err := os.ReadFile(d.dir + "/talks/" + name)
		require.NoError(t, err)
		assert.Equal(t, want, string(text))
	}
	copied.must("Restart")
	assert.Equal(t, "--session-id "+copied.properties().text("ConversationId"), copied.waitRuns(4)[3])
}

func TestFork_IsRefused(t *testing.T) {
	d := startDaemon(t)
	d.defineScript("forker", forker, forkerScript)
	d.defineScript("bound", forker+"ForkElsewhere=no\n", forkerScript)
	d.defineScript("talker", talker, talkerScript)
	d.defineScript("reporter", "[Agent]\nCommand=sleep 1000\nResumeCommand=sleep %U\nForkCommand=sleep %F\n"+
		"IdSource=report\n", "")
	for _, agent := range []string{"forker", "bound", "talker", "reporter"} {
		_, err := d.createWithAgent(t, agent, "a-"+agent, nil)
		require.NoError(t, err)
	}
	for _, row := range []struct {
		what, agent string
		spec        spec
		err         string
		words       []string
	}{
		{"an unknown session", "forker", spec{"ForkedFrom": "nobody"}, dbusapi.NoSuchSession, []string{`"nobody"`}},
		{"an unknown agent", "nothing", spec{"ForkedFrom": "a-forker"}, dbusapi.NoSuchAgent, []string{`"nothing"`}},
		{
			"another agent", "reporter", spec{"ForkedFrom": "a-forker"}, dbusapi.InvalidArgs,
			[]string{`"a-forker"`, `agent "reporter"`, `agent "forker"`},
		},
		{
			"an agent that cannot copy", "talker", spec{"ForkedFrom": "a-talker"}, dbusapi.NotSupported,
			[]string{`agent "talker" has no ForkCommand=`},
		},
		{
			"another workspace", "bound", spec{"ForkedFrom": "a-bound", "WorkingDirectory": "/"}, dbusapi.NotSupported,
			[]string{`"a-bound"`, "only in its workspace", d.dir},
		},
		{
			"an unknown conversation", "reporter", spec{"ForkedFrom": "a-reporter"}, dbusapi.NotResumable,
			[]string{`"a-reporter"`, "not known yet"},
		},
		{"a command", "forker", spec{"ForkedFrom": "a-forker", "Command": []string{"true"}}, dbusapi.InvalidArgs, nil},
		{"two conversations", "forker", spec{"ForkedFrom": "a-forker", "ConversationId": "x"}, dbusapi.InvalidArgs, nil},
		{
			"a conversation that was not saved", "forker", spec{"ForkedFrom": "a-forker"}, dbusapi.StartFailed,
			[]string{"cannot copy conversation", "it was not saved"},
		},
	} {
		t.Run(row.what, func(t *testing.T) {
			_, err := d.createWithAgent(t, row.agent, "", row.spec)
			assertRefused(t, err, row.err, row.words...)
		})
	}
}
