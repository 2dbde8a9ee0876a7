//go:build e2e || agents

package agents

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"github.com/stretchr/testify/require"
)

// setup writes the configuration that an agent has after its set-up dialogs, with the mock model.
// It returns the environment that the agent needs.
func (f *fixture) setup(agent, workspace string) []string {
	f.t.Helper()
	env := []string{"HOME=" + f.dir}
	switch agent {
	case "claude":
		for _, file := range []string{".claude.json", ".claude/.claude.json"} { // the second in a sandbox
			f.configure(file, jsonText(object{
				"hasCompletedOnboarding": true, "theme": "dark", "hasSeenAutoDefaultNudge": true, "hasSeenAutoDefaultNotice": true,
				"projects": object{workspace: object{"hasTrustDialogAccepted": true, "hasCompletedProjectOnboarding": true}},
			}))
		}
		f.configure(".claude/settings.json", jsonText(object{
			"permissions": object{"defaultMode": "default", "disableAutoMode": "disable"},
		}))
		return append(env, "ANTHROPIC_BASE_URL="+f.model.URL, "ANTHROPIC_AUTH_TOKEN=none",
			"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1")
	case "codex":
		f.configure(".codex/config.toml", fmt.Sprintf(`model = "mock"
model_provider = "mock"
approval_policy = "on-request"
sandbox_mode = "read-only"
check_for_update_on_startup = false
[model_providers.mock]
name = "mock"
base_url = "%s/v1"
wire_api = "responses"
env_key = "MOCK_KEY"
[projects.%q]
trust_level = "trusted"
`, f.model.URL, workspace))
		return append(env, "MOCK_KEY=none")
	case "gemini":
		var defaults struct{ General object }
		text, err := os.ReadFile("../../packaging/hooks/gemini.json") // which only a package can install
		require.NoError(f.t, err)
		require.NoError(f.t, json.Unmarshal(text, &defaults))
		general := object{"disableAutoUpdate": true, "enableAutoUpdate": false}
		maps.Copy(general, defaults.General)
		f.configure(".gemini/settings.json", jsonText(object{
			"security":  object{"auth": object{"selectedType": "gemini-api-key"}, "folderTrust": object{"enabled": true}},
			"general":   general,
			"telemetry": object{"enabled": false}, "privacy": object{"usageStatisticsEnabled": false},
		}))
		f.configure(".gemini/trustedFolders.json", jsonText(object{workspace: "TRUST_FOLDER"}))
		return append(env, "GEMINI_API_KEY=none", "GOOGLE_GEMINI_BASE_URL="+f.model.URL)
	case "opencode":
		f.configure(".config/opencode/opencode.json", jsonText(object{
			"provider": object{"mock": object{
				"npm": "@ai-sdk/openai-compatible", "name": "mock",
				"options": object{"baseURL": f.model.URL + "/v1", "apiKey": "none"},
				"models":  object{"mock": object{"name": "mock", "tool_call": true}},
			}},
			"model": "mock/mock", "permission": object{"bash": "ask"}, "autoupdate": false, "share": "disabled",
		}))
		return append(env, "OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1")
	case "copilot":
		f.configure(".copilot/config.json", jsonText(object{"trusted_folders": []string{workspace}, "banner": "never"}))
		return append(env, "COPILOT_PROVIDER_BASE_URL="+f.model.URL+"/v1", "COPILOT_PROVIDER_TYPE=openai",
			"COPILOT_PROVIDER_API_KEY=none", "COPILOT_MODEL=gpt-5",
			"COPILOT_OFFLINE=true", "COPILOT_AUTO_UPDATE=false")
	case "kilo":
		f.configure(".config/kilo/kilo.json", jsonText(object{
			"provider": object{"mock": object{
				"npm": "@ai-sdk/openai-compatible", "name": "mock",
				"options": object{"baseURL": f.model.URL + "/v1", "apiKey": "none"},
				"models":  object{"mock": object{"name": "mock", "tool_call": true}},
			}},
			"model": "mock/mock", "permission": object{"bash": "ask"}, "autoupdate": false, "share": "disabled",
			"snapshot": false, // after a SIGKILL, it waits for minutes for the lock of its snapshots
		}))
		return append(env, "KILO_DISABLE_AUTOUPDATE=1", "KILO_DISABLE_MODELS_FETCH=1")
	case "kimi":
		f.configure(".kimi-code/config.toml", kimiHooks)
		f.configure(fmt.Sprintf(".kimi-code/workspace-trust/wd_%s_%.6x", filepath.Base(workspace),
			sha256.Sum256([]byte(workspace))), jsonText(object{"root": workspace, "trustedAt": 1}))
		return append(env, "KIMI_MODEL_NAME=mock", "KIMI_MODEL_API_KEY=none", "KIMI_MODEL_BASE_URL="+f.model.URL+"/v1",
			"KIMI_MODEL_PROVIDER_TYPE=openai", "KIMI_CODE_NO_AUTO_UPDATE=1", "KIMI_DISABLE_TELEMETRY=1")
	case "droid":
		f.configure(".factory/settings.json", jsonText(object{
			"customModels": []object{{
				"model": "mock", "displayName": "mock", "baseUrl": f.model.URL + "/v1", "apiKey": "none",
				"provider": "generic-chat-completion-api", "maxOutputTokens": 16384,
			}},
			"sessionDefaultSettings": object{"model": "custom:mock-0", "autonomyLevel": "off"},
			"trustedFolders":         object{workspace: object{"trustedAt": "2026-11-21T13:02:59.000Z"}},
		}))
		// Without FACTORY_AIRGAP_ENABLED, it asks its vendor's server whether the key is valid.
		return append(env, "FACTORY_API_KEY=none", "FACTORY_AIRGAP_ENABLED=true")
	case "cline":
		f.configure(".cline/data/settings/providers.json", jsonText(object{
			"version": 1, "lastUsedProvider": "openai-compatible", "modes": object{},
			"providers": object{"openai-compatible": object{
				"settings": object{
					"provider": "openai-compatible", "apiKey": "none", "model": "mock", "baseUrl": f.model.URL + "/v1",
				},
				"updatedAt": "2026-11-21T13:02:59.000Z", "tokenSource": "manual",
			}},
		}))
		f.configure(".cline/data/settings/cli-notices.json", jsonText(object{
			"shown": object{"cline-cli-cline-pass-intro": true, "cline-cli-desktop-launch": true},
		}))
		return append(env, "CLINE_NO_AUTO_UPDATE=1")
	case "pi":
		f.configure(".pi/agent/models.json", jsonText(object{"providers": object{"mock": object{
			"baseUrl": f.model.URL + "/v1", "apiKey": "none", "api": "openai-completions",
			"models": []object{{"id": "mock", "name": "mock"}},
		}}}))
		return append(env, "PI_OFFLINE=1")
	case "qwen":
		f.configure(".qwen/settings.json", jsonText(object{
			"security": object{"auth": object{"selectedType": "openai"}}, "general": object{"disableAutoUpdate": true},
			"tools": object{"approvalMode": "default"},
		}))
		return append(env, "OPENAI_API_KEY=none", "OPENAI_BASE_URL="+f.model.URL+"/v1", "OPENAI_MODEL=mock")
	}
	return env
}

// kimiHooks are the hooks that users of Kimi Code have to set up: see docs/agents/kimi.md.
const kimiHooks = `[[hooks]]
event = "SessionStart"
command = "corralctl report idle -"

[[hooks]]
event = "UserPromptSubmit"
command = "corralctl report working -"

[[hooks]]
event = "PermissionRequest"
command = "corralctl report waiting --reason=permission -"

[[hooks]]
event = "PermissionResult"
command = "corralctl report working -"

[[hooks]]
event = "Interrupt"
command = "corralctl report idle -"

[[hooks]]
event = "Stop"
command = "corralctl report idle --reason=turn-ended -"

[[hooks]]
event = "StopFailure"
command = "corralctl report idle --reason=error -"
`

// configure writes a configuration file of an agent, except for tests of an agent's first start.
func (f *fixture) configure(name, content string) {
	f.t.Helper()
	if !f.bare {
		f.write(name, content)
	}
}

type object = map[string]any

func jsonText(value any) string {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		panic(err) // it consists of maps, lists and strings
	}
	return string(text)
}
