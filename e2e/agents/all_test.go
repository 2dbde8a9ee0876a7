//go:build agents

package agents

// selection is the argument of scripts/agents.sh: all agents of e2e/agents/package.json.
const selection = "all"
