package main

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
)

// TestAccount_IsRebuiltAndResumed: the session of an account, whose record was lost, is rebuilt
// from its scope with its account, and resumes the conversation of that account.
func TestAccount_IsRebuiltAndResumed(t *testing.T) {
	d := startDaemon(t)
	d.write("config/corral/agents/talker@.agent",
		"[Environment]\nSet=ACCOUNT=%I\nEnvironmentFile=-%E/corral/accounts/%I.env\n")
	d.write("config/corral/accounts/home.env", "KEY=1\n")
	d.defineScript("talker", talker, talkerScript)
	s, err := d.createWithAgent(t, "talker@work", "shop", nil)
	require.NoError(t, err)
	runs := s.waitRuns(1)
	before := s.properties()
	assert.Equal(t, "app-corral-talker-:work-shop.scope", before.text("Unit"))
	s.must("SendInput", "hello", dbusapi.InputEnter)
	_ = s.awaitFile("shop.read")

	d.kill(syscall.SIGKILL)
	require.NoError(t, os.RemoveAll(d.stateDir("shop")))
	d.launch()
	d.waitProblems(t, 1)
	for _, property := range []string{"Agent", "MainPID", "ConversationId", "Unit"} {
		assert.Equal(t, before[property], s.properties()[property], property)
	}
	s.must("Suspend")
	s.must("Resume")
	assert.Equal(t, "--resume "+before.text("ConversationId"), s.waitRuns(2)[1])
	assert.Equal(t, "--session-id "+before.text("ConversationId"), runs[0])
	assert.Equal(t, "talker@work", s.properties().text("Agent"))
	s.must("Stop", uint64(0))
}

// TestAccount_ThatCannotBeUsedIsRefused: no session is created, and an existing one is not started.
func TestAccount_ThatCannotBeUsedIsRefused(t *testing.T) {
	d := startDaemon(t)
	const account = "config/corral/accounts/work.env"
	d.write("config/corral/agents/talker@.agent", "[Environment]\nEnvironmentFile=-%E/corral/accounts/%I.env\n")
	d.write(account, "KEY=secret\n")
	d.defineScript("talker", talker, talkerScript)
	s, err := d.createWithAgent(t, "talker@work", "shop", nil)
	require.NoError(t, err)
	s.waitRuns(1)
	s.must("Stop", uint64(0))

	require.NoError(t, os.Chmod(d.dir+"/"+account, 0o644))
	_, err = d.createWithAgent(t, "talker@work", "other", nil)
	assertRefused(t, err, dbusapi.StartFailed, "work.env is a file of mode 0644", "chmod 600 "+d.dir+"/"+account)
	assert.Equal(t, []string{"shop"}, d.ids(t))
	assertRefused(t, s.do("Start"), dbusapi.StartFailed, "work.env is a file of mode 0644", "chmod 600 "+d.dir+"/"+account)

	d.write(account, "KEY=1\nsecret $(touch pwned)\n")
	require.NoError(t, os.Chmod(d.dir+"/"+account, 0o600))
	_, err = d.createWithAgent(t, "talker@work", "other", nil)
	assertRefused(t, err, dbusapi.StartFailed, "work.env: line 2 is not NAME=VALUE")
	assert.NotContains(t, err.Error(), "secret")
	for _, name := range []string{"talker@", "talker@../work", "talker@$(id)", "talker@work@work", "command@work"} {
		_, err = d.createWithAgent(t, name, "other", nil)
		assertRefused(t, err, dbusapi.NoSuchAgent, "no such agent")
	}
	assert.NotContains(t, d.log.String(), "secret")
}
