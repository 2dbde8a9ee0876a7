//go:build agents

package agents

import "testing"

func TestFork_Droid(t *testing.T)    { forks(t, droid, false) }
func TestFork_Kilo(t *testing.T)     { forks(t, kilo, false) }
func TestFork_Opencode(t *testing.T) { forks(t, opencode, false) }
func TestFork_Pi(t *testing.T)       { forks(t, pi, true) }
func TestFork_Qwen(t *testing.T)     { forks(t, qwen, false) }
