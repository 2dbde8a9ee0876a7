//go:build agents

package agents

import "testing"

func TestCodex(t *testing.T) { live(t, codex) }
