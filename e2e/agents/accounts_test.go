//go:build e2e || agents

package agents

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// accountFiles has, for each agent with a template, the pattern of its conversations below the home
// directory, and the files of its configuration for the account "work": which is a copy of which.
var accountFiles = map[string]struct {
	conversations string // "" if they are in a database
	configuration map[string]string
}{
	"claude": {".claude*/projects/*/*.jsonl", map[string]string{
		".claude.json": ".claude-work/.claude.json", ".claude/settings.json": ".claude-work/settings.json",
	}},
	"codex": {".codex*/sessions/*/*/*/rollout-*.jsonl", map[string]string{
		".codex/config.toml": ".codex-work/config.toml",
	}},
	"gemini": {".gemini*/.gemini/tmp/*/chats/session-*.json*", map[string]string{
		".gemini/settings.json":       ".gemini-work/.gemini/settings.json",
		".gemini/trustedFolders.json": ".gemini-work/.gemini/trustedFolders.json",
	}},
	"qwen": {".qwen*/projects/*/chats/*.jsonl", map[string]string{".qwen/settings.json": ".qwen-work/settings.json"}},
	"copilot": {".copilot*/session-state/*/events.jsonl", map[string]string{
		".copilot/config.json": ".copilot-work/config.json",
	}},
	"opencode": {".local/share/opencode-*/opencode/opencode.db", nil},
}

func TestAccounts_Claude(t *testing.T) { accounts(t, "claude") }
func TestAccounts_Codex(t *testing.T)  { accounts(t, "codex") }

// accounts runs an agent with two accounts at once in one directory, suspends both, and resumes
// them: each continues its own conversation, which is in the directory of its account. The shell
// has variables of another account, which no agent gets. It returns the session of one of them.
func accounts(t *testing.T, agent string) *subject {
	f := newFixture(t)
	workspace := filepath.Join(f.dir, "work", "shop")
	require.NoError(t, os.MkdirAll(workspace, 0o755))
	variables := f.setup(agent, workspace)
	sessions := map[string]*subject{}
	for _, account := range []string{"work", "home"} {
		f.write(".config/corral/accounts/"+account+".env", strings.Join(append(variables, "ACCOUNT="+account), "\n")+"\n")
		for from, to := range accountFiles[agent].configuration {
			f.write(strings.ReplaceAll(to, "-work/", "-"+account+"/"), readFile(t, filepath.Join(f.dir, from)))
		}
	}
	for _, name := range []string{
		"CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "QWEN_HOME", "QWEN_RUNTIME_DIR", "COPILOT_HOME",
	} {
		f.env = append(f.env, name+"="+f.dir+"/other")
	}
	for _, name := range []string{"ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GH_TOKEN", "ACCOUNT"} {
		f.env = append(f.env, name+"=other")
	}
	for _, account := range []string{"work", "home"} {
		s := &subject{fixture: f, id: account, workspace: workspace, more: make(chan struct{})}
		t.Cleanup(s.logOutput)
		s.watch()
		sessions[account] = s
		f.corralctl("run", "--id", s.id, "--dir", workspace, "--prompt", "my name is "+account, agent+"@"+account)
	}
	conversations := map[string]string{}
	for account, s := range sessions {
		f.asked("my name is "+account, 1)
		_, _ = s.becomes(0, "idle (turn-ended)")
		conversations[account] = s.known()
		now := s.is("running")
		assert.Equal(t, agent+"@"+account, now.Agent)
		assert.Equal(t, "app-corral-"+agent+"-:"+account+"-"+account+".scope", now.Unit)
	}
	assert.NotEqual(t, conversations["work"], conversations["home"])
	f.corralctl("suspend", "work", "home")
	for account, s := range sessions {
		s.is("suspended")
		if pattern := accountFiles[agent].conversations; pattern != "" {
			files, err := filepath.Glob(filepath.Join(f.dir, pattern))
			require.NoError(t, err)
			assert.Contains(t, strings.Join(files, "\n"), "-"+account+"/")
			assert.Len(t, files, len(sessions), "one of each account, and no other: %q", files)
		}
	}
	assert.NoDirExists(t, filepath.Join(f.dir, "other"))
	f.corralctl("resume", "work", "home")
	for account, s := range sessions {
		assert.Equal(t, conversations[account], s.is("running").ConversationId)
		s.shows("my name is " + account)
		again := "are you still there, " + account
		s.send(again)
		f.asked(again, 1)
		request := f.model.RequestFor(again)
		for other := range sessions {
			assert.Equal(t, other == account, strings.Contains(request, "my name is "+other), account)
		}
		assert.Equal(t, "ACCOUNT="+account, s.variable("ACCOUNT"))
	}
	return sessions["work"]
}

// variable returns the entry of a variable in the environment of the agent's main process.
func (s *subject) variable(name string) string {
	s.t.Helper()
	environment := readFile(s.t, "/proc/"+strings.TrimSpace(s.corralctl("show", "-P", "MainPID", s.id))+"/environ")
	for entry := range strings.SplitSeq(environment, "\x00") {
		if strings.HasPrefix(entry, name+"=") {
			return entry
		}
	}
	return ""
}
