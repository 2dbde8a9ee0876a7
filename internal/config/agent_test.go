package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLoadAgents(t *testing.T) {
	agents, warnings := LoadAgents(tree("agents"))
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(agents)) {
		a := agents[name]
		fmt.Fprintf(&b, "%s: %s\n  Command %q\n  ResumeCommand %q\n  IdSource %s\n",
			a.Name, a.Description, a.Command, a.ResumeCommand, a.IdSource)
		fmt.Fprintf(&b, "  Environment %q, without %q\n  Properties %q\n  from %s %s\n",
			a.Environment, a.UnsetEnvironment, a.Properties, a.Source, a.DropIns)
		if a.IdFile != nil {
			fmt.Fprintf(&b, "  ForkCommand %q, elsewhere %v\n", a.ForkCommand, !a.NoForkElsewhere)
			fmt.Fprintf(&b, "  ResumeCondition %q\n  IdFile %s with %s\n  IdPattern %s\n  StopWhom %s after %v\n  Programs %q\n",
				a.ResumeCondition, a.IdFile, a.IdFileContent, a.IdPattern, a.StopTarget, a.StopTimeout(), a.Programs())
		}
		b.WriteString("\n")
	}
	golden(t, "agents.golden", b.String()+lines(warnings))
}

func TestLoadAgents_HasCommandAgentWithoutFiles(t *testing.T) {
	agents, warnings := LoadAgents(nil)
	assert.Empty(t, warnings)
	assert.Equal(t, Agents{"command": {
		Name: "command", IdSource: "none", Type: "simple", StopTarget: "agent",
		Status: Status{ReadyTimeout: 400 * time.Millisecond},
	}}, agents)
}

func TestAgent_TmuxConfig(t *testing.T) {
	root := write(t, map[string]string{
		"agents/a.agent": "[Agent]\nCommand=a\nTmuxConfig=/etc/tmux.conf\n",
		"agents/b.agent": "[Agent]\nCommand=b\nTmuxConfig=user\nTmuxConfig=\n",
	})
	agents, warnings := LoadAgents([]string{root})
	assert.Empty(t, warnings)
	assert.Equal(t, "/etc/tmux.conf", agents["a"].TmuxConfig)
	assert.Empty(t, agents["b"].TmuxConfig)
}

func TestAgent_Notify(t *testing.T) {
	root := write(t, map[string]string{
		"agents/a.agent": "[Agent]\nCommand=a\nNotify=no\n",
		"agents/b.agent": "[Agent]\nCommand=b\nNotify=failed  stale\n",
		"agents/c.agent": "[Agent]\nCommand=c\nNotify=yes\nNotify=\n",
		"agents/d.agent": "[Agent]\nCommand=d\nNotify=yes\n",
		"agents/e.agent": "[Agent]\nCommand=e\nNotify=never\n",
	})
	agents, warnings := LoadAgents([]string{root})
	assert.Equal(t, []string{}, agents["a"].Notify)
	assert.Equal(t, []string{"failed", "stale"}, agents["b"].Notify)
	assert.Nil(t, agents["c"].Notify)
	assert.Equal(t, NotifyAll, agents["d"].Notify)
	assert.Nil(t, agents["e"].Notify)
	require.Len(t, warnings, 1)
	assert.Contains(t, warnings[0].String(), `Notify=: invalid value "never": expected yes, no or some of failed, waiting`)
}

func TestAgent_IdleAfterSec(t *testing.T) {
	root := write(t, map[string]string{
		"agents/repl.agent":    "[Agent]\nCommand=a\nIdleAfterSec=30\n",
		"agents/compile.agent": "[Agent]\nCommand=a\nIdleAfterSec=5min\n",
		"agents/unset.agent":   "[Agent]\nCommand=a\nIdleAfterSec=5min\nIdleAfterSec=\n",
		"agents/wrong.agent":   "[Agent]\nCommand=a\nIdleAfterSec=0\nIdleAfterSec=infinity\nIdleAfterSec=soon\n",
	})
	agents, warnings := LoadAgents([]string{root})
	for name, want := range map[string]time.Duration{
		"repl": 30 * time.Second, "compile": 5 * time.Minute, "unset": 0, "wrong": 0,
	} {
		assert.Equal(t, want, agents[name].IdleAfter, name)
	}
	require.Len(t, warnings, 3)
	for _, w := range warnings {
		assert.Contains(t, w.String(), "IdleAfterSec=: ")
	}
}

func TestAgent_TypeAndIdleSuspendSec(t *testing.T) {
	root := write(t, map[string]string{
		"agents/a.agent": "[Agent]\nCommand=a\nType=notify\nIdleSuspendSec=2h\n",
		"agents/b.agent": "[Agent]\nCommand=b\nType=notify\nType=\nIdleSuspendSec=0\n",
		"agents/c.agent": "[Agent]\nCommand=c\nType=forking\nIdleSuspendSec=soon\n",
	})
	agents, warnings := LoadAgents([]string{root})
	type read struct {
		kind string
		idle time.Duration
	}
	assert.Equal(t, read{"notify", 2 * time.Hour}, read{agents["a"].Type, agents["a"].IdleSuspend})
	assert.Equal(t, read{"simple", Infinity}, read{agents["b"].Type, agents["b"].IdleSuspend})
	assert.Equal(t, read{"simple", 0}, read{agents["c"].Type, agents["c"].IdleSuspend},
		"invalid values are reported and ignored")
	require.Len(t, warnings, 2)
	assert.Contains(t, warnings[0].String(), `Type=: invalid value "forking": expected simple or notify`)
	assert.Contains(t, warnings[1].String(), `IdleSuspendSec=: invalid time span "soon"`)
}

func TestAgent_AgentsMayControl(t *testing.T) {
	root := write(t, map[string]string{
		"agents/a.agent": "[Agent]\nCommand=a\nAgentsMayControl=all\n",
		"agents/b.agent": "[Agent]\nCommand=b\nAgentsMayControl=yes\n",
	})
	agents, warnings := LoadAgents([]string{root})
	assert.Equal(t, []string{ControlAll, ""}, []string{agents["a"].AgentsMayControl, agents["b"].AgentsMayControl})
	require.Len(t, warnings, 1)
	assert.Contains(t, warnings[0].String(),
		`agents/b.agent:3: AgentsMayControl=: invalid value "yes": expected none, descendants or all`)
}

func TestAgent_MaxRunning(t *testing.T) {
	root := write(t, map[string]string{
		"agents/a.agent":  "[Agent]\nCommand=a\nMaxRunning=2\n",
		"agents/a@.agent": "[Agent]\nCommand=a\nMaxRunning=3\n",
		"agents/b.agent":  "[Agent]\nCommand=b\nMaxRunning=0\n",
	})
	agents, warnings := LoadAgents([]string{root})
	account, _ := agents.Find("a@work")
	assert.Equal(t, []int{2, 3, 0}, []int{agents["a"].MaxRunning, account.MaxRunning, agents["b"].MaxRunning})
	require.Len(t, warnings, 1)
	assert.Contains(t, warnings[0].String(), `agents/b.agent:3: MaxRunning=: invalid number "0": expected 1 or more`)
}

// The shipped agent files load without a warning and have complete commands for a run and for its
// resumption.
func TestShippedAgents_ExpandTheirCommands(t *testing.T) {
	agents, warnings := LoadAgents([]string{"../.."})
	require.Empty(t, lines(warnings))
	files, err := filepath.Glob("../../agents/*.agent")
	require.NoError(t, err)
	assert.Len(t, agents, len(files), "every file")

	const share = "/usr/share/corral"
	s := Specifiers{
		Conversation: "1b4e28ba-2fa1-4d2b-883f-0016d3cca427", Session: "shop", Workspace: "/work space",
		Runtime: "/run/u/1/corral/shop", Home: "/home/u", Share: share,
	}
	const id = "1b4e28ba-2fa1-4d2b-883f-0016d3cca427"
	history, data := "/work space/.aider.chat.history."+id+".md", "/work space/.crush/corral/"+id
	for name, want := range map[string]struct{ command, resume []string }{
		"claude": {[]string{"claude", "--session-id", id, "--settings", share + "/hooks/claude.json"},
			[]string{"claude", "--resume", id, "--settings", share + "/hooks/claude.json"}},
		"codex":    {[]string{"codex", "--no-daemon"}, []string{"codex", "--no-daemon", "resume", id}},
		"gemini":   {[]string{"gemini", "--session-id", id}, []string{"gemini", "--resume", id}},
		"opencode": {[]string{"opencode"}, []string{"opencode", "-s", id}},
		"copilot": {[]string{"copilot", "--session-id", id, "--plugin-dir", share + "/hooks/copilot"},
			[]string{"copilot", "--session-id", id, "--plugin-dir", share + "/hooks/copilot"}},
		"qwen":   {[]string{"qwen", "--session-id", id}, []string{"qwen", "--resume", id}},
		"amp":    {[]string{"amp"}, []string{"amp", "threads", "continue", id}},
		"cursor": {[]string{"cursor-agent", "--resume", id}, []string{"cursor-agent", "--resume", id}},
		"goose": {[]string{"goose", "session", "-n", "shop-" + id},
			[]string{"goose", "session", "-r", "-n", "shop-" + id}},
		"crush": {[]string{"crush", "--data-dir", data}, []string{"crush", "--data-dir", data, "--continue"}},
		"aider": {[]string{"aider", "--chat-history-file", history},
			[]string{"aider", "--chat-history-file", history, "--restore-chat-history"}},
		"pi": {[]string{"pi", "--session-id", id, "-e", share + "/hooks/pi.js"},
			[]string{"pi", "--session-id", id, "-e", share + "/hooks/pi.js"}},
		"kilo": {[]string{"kilo"}, []string{"kilo", "-s", id}},
		"kimi": {[]string{"kimi"}, []string{"kimi", "--session", id}},
		"droid": {[]string{"droid", "--settings", share + "/hooks/droid.json"},
			[]string{"droid", "--settings", share + "/hooks/droid.json", "--resume", id}},
		"cline":       {[]string{"cline"}, []string{"cline", "--id", id}},
		"antigravity": {[]string{"agy"}, []string{"agy", "--conversation", id}},
		"grok":        {[]string{"grok", "--session-id", id}, []string{"grok", "--resume", id}},
		"kiro":        {[]string{"kiro-cli", "chat"}, []string{"kiro-cli", "chat", "--resume-id", id}},
		"devin":       {[]string{"devin"}, []string{"devin", "--resume", id}},
		"hermes":      {[]string{"hermes"}, []string{"hermes", "--resume", id}},
		"vibe":        {[]string{"vibe"}, []string{"vibe", "--resume", id}},
		"shell":       {[]string{"/bin/sh", "-c", `exec "${SHELL:-/bin/sh}" -l`}, []string{}},
		"command":     {[]string{}, []string{}},
	} {
		a := agents[name]
		assert.NotEmpty(t, a.Description, name)
		command, err := Expand(a.Command, s)
		require.NoError(t, err, name)
		assert.Equal(t, want.command, command, name)
		resume, err := Expand(a.ResumeCommand, s)
		require.NoError(t, err, name)
		assert.Equal(t, want.resume, resume, name)
	}
	assert.Contains(t, agents["claude"].Environment, "CLAUDE_CODE_DISABLE_AGENT_VIEW=1")
	assert.Contains(t, agents["kilo"].Environment, "KILO_NO_DAEMON=1")
	assert.Contains(t, agents["opencode"].Environment,
		`OPENCODE_CONFIG_CONTENT={"plugin":["file://%P/hooks/opencode.js"]}`)
}

// Every file below %P that an agent definition names exists in the source tree and is valid.
func TestShippedHooks_ExistAndAreUsed(t *testing.T) {
	agents, _ := LoadAgents([]string{"../.."})
	var named []string
	for _, a := range agents {
		text := strings.Join(slices.Concat(a.Command, a.ResumeCommand, a.Environment), " ")
		for _, match := range regexp.MustCompile(`%P/([\w./]*\w)`).FindAllStringSubmatch(text, -1) {
			_, err := os.Stat("../../packaging/" + match[1])
			require.NoError(t, err)
			named = append(named, match[1])
		}
	}
	for _, file := range []string{
		"hooks/claude.json", "hooks/gemini.json", "hooks/qwen.json", "hooks/opencode.js", "hooks/copilot",
		"hooks/pi.js", "hooks/droid.json",
	} {
		assert.Contains(t, named, file, "no agent is given it")
	}
	files, err := filepath.Glob("../../packaging/hooks/*.json")
	require.NoError(t, err)
	more, err := filepath.Glob("../../packaging/hooks/*/*.json")
	require.NoError(t, err)
	for _, file := range append(files, more...) {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.True(t, json.Valid(content), file)
	}
}

// An agent that reports its conversation id later must be able to start without it.
func TestShippedAgents_StartWithoutUnknownConversation(t *testing.T) {
	agents, _ := LoadAgents([]string{"../.."})
	for name, a := range agents {
		s := Specifiers{Session: "shop", Workspace: "/w", Runtime: "/t", Home: "/h", Share: "/p"}
		if IsTemplate(name) {
			s.Instance = "work"
		}
		if a.IdSource == IdPreset || a.IdSource == IdHistoryFile || a.IdSource == IdCreate {
			s.Conversation = "1b4e28ba-2fa1-4d2b-883f-0016d3cca427"
		}
		_, err := Expand(append(a.Command, a.Environment...), s)
		assert.NoError(t, err, name)
	}
}

func TestValidName(t *testing.T) {
	for _, s := range []string{"a", "0", "shop-2", "a.b_c", "a_", "a--b", strings.Repeat("x", 64)} {
		assert.True(t, ValidName(s), s)
	}
	for _, s := range []string{
		"", "-", ".", "_a", "a-", "a.", "A", "a b", "ä", "../../etc", "a/b", "a\n", "a\x00", strings.Repeat("x", 65),
	} {
		assert.False(t, ValidName(s), "%q", s)
	}
}

func TestExpand(t *testing.T) {
	s := Specifiers{
		Conversation: "ses_1.2:3-4", Session: "shop", Workspace: "/w 1", Runtime: "/run/%h", Home: "/home/u",
		Share: "/opt", Instance: "work", ConfigHome: "/home/u/.config",
	}
	for name, c := range map[string]struct{ arg, want, err string }{
		"all specifiers": {
			"%U|%8|%i|%I|%w|%h|%E|%P", "ses_1.2:3-4|ses_1.2:|shop|work|/w 1|/home/u|/home/u/.config|/opt", "",
		},
		"a percent sign":                {"100%% %%U", "100% %U", ""},
		"a value is not expanded again": {"%t", "/run/%h", ""},
		"an empty argument":             {"", "", ""},
		"nothing to expand":             {"$HOME `id`", "$HOME `id`", ""},
		"an unknown specifier":          {"a%Q", "", `cannot expand "a%Q": unknown specifier "%Q"`},
		"a specifier of two bytes":      {"%ä", "", "unknown specifier"},
		"a percent sign at the end":     {"50%", "", "single % at the end"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Expand([]string{c.arg}, s)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				assert.Error(t, checkSpecifiers(c.arg))
				return
			}
			require.NoError(t, err)
			assert.Equal(t, []string{c.want}, got)
		})
	}
}

func TestExpand_RejectsInvalidConversationIDs(t *testing.T) {
	for id, want := range map[string]string{
		"":                       "specifier %U has no value",
		"--dangerous":            "invalid conversation id",
		"a b":                    "invalid conversation id",
		"../x":                   "invalid conversation id",
		strings.Repeat("x", 129): "invalid conversation id",
	} {
		_, err := Expand([]string{"--resume", "%U"}, Specifiers{Conversation: id})
		require.ErrorContains(t, err, want, "%q", id)
	}
	assert.True(t, ValidConversationID(strings.Repeat("x", 128)))
}

func FuzzExpand(f *testing.F) {
	for _, seed := range []string{"%U", "%%", "a%", "%w/%i %h%t", "%\xff", "%8%P"} {
		f.Add(seed)
	}
	s := Specifiers{
		Conversation: "U", Session: "i", Instance: "I", Workspace: "w", Runtime: "t", Home: "h", ConfigHome: "E", Share: "P",
	}
	f.Fuzz(func(t *testing.T, arg string) {
		got, err := Expand([]string{arg}, s)
		if (err == nil) != (checkSpecifiers(arg) == nil) {
			t.Fatalf("%q: Expand returns %v, checkSpecifiers %v", arg, err, checkSpecifiers(arg))
		}
		if err == nil && (len(got) != 1 || len(got[0])+strings.Count(arg, "%") < len(arg)) {
			t.Fatalf("%q became %q", arg, got)
		}
	})
}
