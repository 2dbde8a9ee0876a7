//go:build agents

package agents

import "testing"

func TestOpencode(t *testing.T) { live(t, opencode) }
func TestQwen(t *testing.T)     { live(t, qwen) }
