//go:build e2e || agents

package agents

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// packages are the npm packages of the agents.
var packages = map[string]string{
	"claude": "@anthropic-ai/claude-code-linux-x64", "codex": "@openai/codex", "copilot": "@github/copilot-linux-x64",
	"gemini": "@google/gemini-cli", "opencode": "opencode-linux-x64", "qwen": "@qwen-code/qwen-code",
	"cline": "@cline/cli-linux-x64", "droid": "@factory/cli-linux-x64", "kilo": "@kilocode/cli-linux-x64",
	"kimi": "@moonshot-ai/kimi-code", "pi": "@earendil-works/pi-coding-agent",
}

var results = struct {
	sync.Mutex
	passed, failed map[string]int // by agent: how many sessions of tests that passed, or failed
}{passed: map[string]int{}, failed: map[string]int{}}

// recordResult records whether a test with a session of an agent has passed.
func recordResult(agent string, passed bool) {
	results.Lock()
	defer results.Unlock()
	if passed {
		results.passed[agent]++
	} else {
		results.failed[agent]++
	}
}

// printVersions prints for each agent that was tested its version, that of the lock file if it is
// another one, and how many tests have passed.
func printVersions() {
	results.Lock()
	defer results.Unlock()
	var pinned struct{ Dependencies, DevDependencies map[string]string }
	if text, err := os.ReadFile("package.json"); err == nil {
		_ = json.Unmarshal(text, &pinned)
	}
	for _, agent := range slices.Sorted(maps.Keys(packages)) {
		passed, failed := results.passed[agent], results.failed[agent]
		if passed+failed == 0 {
			continue
		}
		version := installedVersion(agent)
		text := fmt.Sprintf("%-9s %s", agent, version)
		was := cmp.Or(pinned.Dependencies[packages[agent]], pinned.DevDependencies[packages[agent]])
		if was != version {
			text += " instead of " + was
		}
		fmt.Printf("%s: %d sessions passed, %d failed\n", text, passed, failed)
	}
}

// installedVersion returns the version of an agent's package.
func installedVersion(agent string) string {
	var p struct{ Version string }
	text, err := os.ReadFile(filepath.Join(os.Getenv(agentsVariable), "node_modules", packages[agent], "package.json"))
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil {
		return "unknown: " + err.Error()
	}
	return p.Version
}
