//go:build agents

package agents

import "testing"

func TestGemini(t *testing.T)  { live(t, gemini) }
func TestCopilot(t *testing.T) { live(t, copilot) }
