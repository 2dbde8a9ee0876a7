//go:build e2e || agents

package agents

import (
	"encoding/json"
	"fmt"
)

// setup writes the configuration that an agent has after its set-up dialogs, with the mock model.
// It returns the environment that the agent needs.
func (f *fixture) setup(agent, workspace string) []string {
	f.t.Helper()
	env := []string{"HOME=" + f.dir}
	switch agent {
	case "claude":
		f.configure(".claude.json", jsonText(object{
			"hasCompletedOnboarding": true, "theme": "dark", "hasSeenAutoDefaultNudge": true, "hasSeenAutoDefaultNotice": true,
			"projects": object{workspace: object{"hasTrustDialogAccepted": true, "hasCompletedProjectOnboarding": true}},
		}))
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
		f.configure(".gemini/settings.json", jsonText(object{
			"security":  object{"auth": object{"selectedType": "gemini-api-key"}, "folderTrust": object{"enabled": true}},
			"general":   object{"disableAutoUpdate": true, "enableAutoUpdate": false},
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
	case "qwen":
		f.configure(".qwen/settings.json", jsonText(object{
			"security": object{"auth": object{"selectedType": "openai"}}, "general": object{"disableAutoUpdate": true},
			"tools": object{"approvalMode": "default"},
		}))
		return append(env, "OPENAI_API_KEY=none", "OPENAI_BASE_URL="+f.model.URL+"/v1", "OPENAI_MODEL=mock")
	}
	return env
}

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
