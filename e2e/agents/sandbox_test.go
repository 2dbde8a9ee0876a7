//go:build agents

package agents

import "testing"

// TestSandbox_AgentsWorkAsOutside does with the agents in a sandbox what is done with them outside:
// real turns, permissions, a kill, a resume and a stop, with the same reports.
func TestSandbox_AgentsWorkAsOutside(t *testing.T) {
	for _, m := range []behaviour{claude, codex, copilot, gemini, opencode, qwen} {
		t.Run(m.agent, func(t *testing.T) { live(t, m, "--sandbox") })
	}
}
