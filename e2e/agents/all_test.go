//go:build agents

package agents

// tried are the agents of e2e/agents/package.json.
const tried = "all"
