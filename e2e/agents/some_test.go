//go:build e2e && !agents

package agents

// selection is the argument of scripts/agents.sh: the agents that every change is tested with.
const selection = "some"
