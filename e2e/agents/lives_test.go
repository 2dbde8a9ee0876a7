//go:build agents

package agents

import "testing"

func TestGemini(t *testing.T)   { live(t, gemini) }
func TestCopilot(t *testing.T)  { live(t, copilot) }
func TestOpencode(t *testing.T) { live(t, opencode) }
func TestQwen(t *testing.T)     { live(t, qwen) }
