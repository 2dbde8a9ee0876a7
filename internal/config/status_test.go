package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestAgent_StatusSection(t *testing.T) {
	root := write(t, map[string]string{
		"agents/full.agent": "[Agent]\nCommand=a\n[Status]\nSources=title report\nSources=bell title\nTitleReady=^◇\n" +
			"TitleWorking=^✦\nTitleBlocked=^✋\nSetupPattern=Do you trust .*\\?\nReadyTimeoutSec=1min\n",
		"agents/full.agent.d/order.conf": "[Status]\nTitleReady=\n",
		"agents/reset.agent": "[Agent]\nCommand=a\n[Status]\nSources=bell\nSources=\nReadyTimeoutSec=3\nReadyTimeoutSec=\n" +
			"SetupPattern=x\nSetupPattern=\n",
		"agents/wrong.agent": "[Agent]\nCommand=a\n[Status]\n" +
			"Sources=hooks bell\nTitleWorking=(\nReadyTimeoutSec=0\nColour=green\n",
	})
	agents, warnings := LoadAgents([]string{root})
	assert.Equal(t, Status{
		Sources: []string{"title", "report", "bell"}, TitleWorking: "^✦", TitleBlocked: "^✋",
		SetupPattern: `Do you trust .*\?`, ReadyTimeout: time.Minute,
	}, agents["full"].Status)
	assert.Equal(t, Status{ReadyTimeout: 400 * time.Millisecond}, agents["reset"].Status)
	assert.Equal(t, Status{Sources: []string{"bell"}, ReadyTimeout: 400 * time.Millisecond}, agents["wrong"].Status,
		"invalid values are reported and ignored")
	reported := lines(warnings)
	for _, text := range []string{
		`wrong.agent:4: Sources=: unknown source "hooks": expected osc7501, report, notify, title, bell, ignored`,
		"wrong.agent:5: TitleWorking=: error parsing regexp",
		"wrong.agent:6: ReadyTimeoutSec=: ",
		"wrong.agent:7: unknown key Colour= in section [Status], ignored",
	} {
		assert.Contains(t, reported, text)
	}
}

// The samples are terminal titles that the real agents set.
func TestShippedAgents_TitlePatternsMatch(t *testing.T) {
	agents, _ := LoadAgents([]string{"../.."})
	for agent, titles := range map[string]struct{ ready, working, blocked string }{
		"gemini":   {"◇  Ready (shop)", "✦  Working… (shop)", "✋  Action Required (shop)"},
		"qwen":     {"Qwen - shop", "◐︎ Qwen - shop", "✳︎ Qwen - shop"},
		"codex":    {"", "", "[ ! ] Action Required | shop"},
		"opencode": {"OpenCode", "", ""},
		"kilo":     {"Kilo CLI | A title", "", ""},
		"grok":     {"", "", "⚠ Action Required - shop - grok"},
	} {
		status := agents[agent].Status
		for pattern, title := range map[string]string{
			status.TitleReady: titles.ready, status.TitleWorking: titles.working, status.TitleBlocked: titles.blocked,
		} {
			assert.Equal(t, pattern == "", title == "", agent)
			assert.Regexp(t, pattern, title, agent)
		}
	}
}
