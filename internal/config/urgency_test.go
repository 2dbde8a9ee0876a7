package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNotifyUrgency_InConfigurationAndAgents(t *testing.T) {
	root := write(t, map[string]string{
		"corral.conf":           "[Corral]\nNotifyUrgency=failed:critical  waiting:low\n",
		"corral.conf.d/10.conf": "[Corral]\nNotifyUrgency=stale\nNotifyUrgency=broken:low\nNotifyUrgency=failed:urgent\n",
		"agents/a.agent":        "[Agent]\nCommand=a\nNotifyUrgency=completed:normal failed:low failed:normal\n",
		"agents/b.agent":        "[Agent]\nCommand=b\nNotifyUrgency=failed:low\nNotifyUrgency=\n",
		"agents/c.agent":        "[Agent]\nCommand=c\nNotifyUrgency=critical\n",
	})
	c, warnings, err := Load([]string{root})
	require.NoError(t, err)
	assert.Equal(t, Urgencies{"failed": "critical", "waiting": "low"}, c.NotifyUrgency, "invalid lines change nothing")
	require.Len(t, warnings, 3)
	for i, want := range []string{
		`corral.conf.d/10.conf:2: NotifyUrgency=: invalid entry "stale": expected KIND:URGENCY, such as failed:critical`,
		`corral.conf.d/10.conf:3: NotifyUrgency=: invalid kind "broken": expected one of failed, waiting, completed, stale, orphaned, suspended`,
		`corral.conf.d/10.conf:4: NotifyUrgency=: invalid urgency "urgent": expected one of low, normal, critical`,
	} {
		assert.Contains(t, warnings[i].String(), want)
	}

	agents, warnings := LoadAgents([]string{root})
	assert.Equal(t, Urgencies{"completed": "normal", "failed": "normal"}, agents["a"].NotifyUrgency,
		"the last entry of a kind applies")
	assert.Nil(t, agents["b"].NotifyUrgency, "an empty value resets it")
	assert.Nil(t, agents["c"].NotifyUrgency)
	require.Len(t, warnings, 1)
	assert.Contains(t, warnings[0].String(), `agents/c.agent:3: NotifyUrgency=`)
}
