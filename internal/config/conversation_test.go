package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestExpandPatterns(t *testing.T) {
	s := Specifiers{Conversation: "1b4e28ba-2fa1", Workspace: "/w/[1] *", Home: "/home/u"}
	for name, c := range map[string]struct {
		pattern   string
		variables []string
		want      []string
	}{
		"specifiers":                         {"%h/.prog/*/%U.jsonl", nil, []string{"/home/u/.prog/*/1b4e28ba-2fa1.jsonl"}},
		"the start of the id":                {"%h/session-*-%8.json*", nil, []string{"/home/u/session-*-1b4e28ba.json*"}},
		"a variable":                         {"${PROG_HOME}/%U", []string{"PROG_HOME=/d"}, []string{"/d/1b4e28ba-2fa1"}},
		"the last entry applies":             {"${A}", []string{"A=/1", "AB=/x", "A=/2"}, []string{"/2"}},
		"a variable that is not set":         {"${PROG_HOME}/%U", []string{"PROG_HOMES=/data"}, nil},
		"a variable that is empty":           {"${PROG_HOME}/%U", []string{"PROG_HOME="}, nil},
		"a variable with a relative path":    {"${PROG_HOME}/%U", []string{"PROG_HOME=data"}, nil},
		"a value matches only itself":        {"%w/${A}?", []string{`A=a\*`}, []string{`/w/\[1] \*/a\\\*?`}},
		"a variable's value is not expanded": {"${A}/%U", []string{"A=/%h/${B}"}, []string{"/%h/${B}/1b4e28ba-2fa1"}},
		"literal dollar and percent signs":   {"/$A/%%", []string{"A=x"}, []string{"/$A/%"}},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, checkPattern(c.pattern))
			got, err := ExpandPatterns([]string{c.pattern}, s, c.variables)
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
		})
	}
	_, err := ExpandPatterns([]string{"%h/%U"}, Specifiers{Home: "/h"}, nil)
	require.ErrorContains(t, err, "specifier %U has no value")
}

func TestExpandKnown(t *testing.T) {
	s := Specifiers{Session: "shop", Home: "/home/u"}
	got, err := ExpandKnown([]string{"--resume", "%U", "%h/%i/%8", "%%"}, s)
	require.NoError(t, err)
	assert.Equal(t, []string{"--resume", "%U", "/home/u/shop/%8", "%"}, got)
	_, err = ExpandKnown([]string{"%Q"}, s)
	require.ErrorContains(t, err, "unknown specifier")
	s.Conversation = "-x"
	got, err = ExpandKnown([]string{"%U"}, s)
	require.NoError(t, err)
	assert.Equal(t, []string{"%U"}, got, "an invalid id is not inserted")
}

func TestFindConversation(t *testing.T) {
	s := Specifiers{Session: "shop", Workspace: "/w", Home: "/home/u"}
	agent := Agent{
		Command:       []string{"claude", "--session-id", "%U", "--dir=%w"},
		ResumeCommand: []string{"claude", "--resume=%U"},
	}
	for name, c := range map[string]struct {
		shown []string
		want  string
	}{
		"as executed":            {[]string{"claude", "--session-id", "c-1", "--dir=/w"}, "c-1"},
		"by an interpreter":      {[]string{"node", "/usr/bin/claude", "--session-id", "c-1", "--dir=/w"}, "c-1"},
		"with further arguments": {[]string{"claude", "--session-id", "c-1", "--dir=/w", "--model", "x"}, "c-1"},
		"resumed":                {[]string{"claude", "--resume=c-2"}, "c-2"},
		"another directory's":    {[]string{"claude", "--session-id", "c-1", "--dir=/x"}, ""},
		"no id":                  {[]string{"claude", "--session-id", "--x", "--dir=/w"}, ""},
		"another command":        {[]string{"sh", "-c", "claude"}, ""},
		"nothing":                {nil, ""},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, agent.FindConversation(c.shown, s)) })
	}
	agent = Agent{Command: []string{"codex"}, ResumeCommand: []string{"codex", "resume", "%U"}}
	assert.Empty(t, agent.FindConversation([]string{"codex"}, s))
	assert.Equal(t, "c-3", agent.FindConversation([]string{"codex", "resume", "c-3"}, s))
}

func FuzzExpandPatterns(f *testing.F) {
	for _, seed := range []string{"%h/*/%U", "${A}/%8", "${A", "${}", "${A}${B}", "/[%w]", `/\`, "%"} {
		f.Add(seed, "/va*l[ue")
	}
	f.Fuzz(func(t *testing.T, pattern, value string) {
		s := Specifiers{Conversation: "U", Session: "i", Workspace: "/w[", Runtime: "/t", Home: "/h*", Share: "/P"}
		got, err := ExpandPatterns([]string{pattern}, s, []string{"A=" + value, "B=/b"})
		if checked := checkPattern(pattern); checked == nil && err != nil {
			t.Fatalf("%q passes the check and then: %v", pattern, err)
		}
		for _, text := range got {
			if _, err := filepath.Match(text, "/x"); checkPattern(pattern) == nil && err != nil {
				t.Fatalf("%q became %q, which is not a pattern", pattern, text)
			}
		}
	})
}

// The samples are what the real agents print when they exit, and the names of files that they keep
// open.
func TestShippedAgents_DetectConversationIDs(t *testing.T) {
	agents, _ := LoadAgents([]string{"../.."})
	const id = "1b4e28ba-2fa1-4d2b-883f-0016d3cca427"
	for name, c := range map[string]struct{ text, id string }{
		"claude":   {"Resume this session with:\nclaude --resume " + id, id},
		"codex":    {"To continue this session, run codex resume " + id, id},
		"gemini":   {"To resume this session: gemini --resume " + id, id},
		"opencode": {"Continue  opencode -s ses_5ad1c9fffeZZx", "ses_5ad1c9fffeZZx"},
		"copilot":  {"Resume with: copilot --resume=" + id, id},
		"qwen":     {"qwen --resume " + id, id},
		"amp":      {"amp threads continue T-" + id, "T-" + id},
		"pi":       {"To resume this session: pi --session " + id, id},
		"kilo":     {"kilo -s ses_de9a4ae02ffeGWkLPYOeyZyHn6", "ses_de9a4ae02ffeGWkLPYOeyZyHn6"},
		"kimi":     {" To resume this session: kimi -r session_" + id, "session_" + id},
		"droid":    {"To resume this session, run: droid --resume " + id, id},
		"cline":    {"  Continue  cline --id 1795671814695_8clru", "1795671814695_8clru"},
		"grok":     {"Resume this session with:\n  grok --minimal --resume " + id, id},
		"hermes":   {"Resume this session with:\n  hermes --resume 20260627_184951_ba55a7", "20260627_184951_ba55a7"},
		"vibe":     {"Or: vibe --resume " + id, id},
	} {
		found := agents[name].IdPattern.FindStringSubmatch(c.text)
		require.Len(t, found, 2, name)
		assert.Equal(t, c.id, found[1], name)
	}
	file := agents["codex"].IdFile
	path := "/h/.codex/sessions/2026/11/21/rollout-2026-11-21T13-02-59-" + id + ".jsonl"
	assert.Equal(t, id, file.FindStringSubmatch(path)[1])
	assert.Nil(t, file.FindStringSubmatch(path+" (deleted)"))
	assert.Nil(t, file.FindStringSubmatch("/h/rollout-/"+id+".jsonl"))
	file = agents["antigravity"].IdFile
	assert.Equal(t, id, file.FindStringSubmatch("/h/.gemini/antigravity-cli/conversations/" + id + ".db")[1])
	assert.Nil(t, file.FindStringSubmatch("/h/.gemini/antigravity-cli/conversations/"+id+".db-wal"))
	content := agents["codex"].IdFileContent
	assert.Regexp(t, content,
		`{"type":"session_meta","payload":{"id":"`+id+`","source":"cli","thread_source":"user"}}`+"\n{}")
	assert.NotRegexp(t, content, `{"type":"session_meta","payload":{"id":"`+id+`","source":{"subagent":{"depth":1}},"text":"a \"source\":\"x\""}}`+"\n"+`{"source":"x"}`)
}

// The samples are the files in which the real agents save a conversation.
func TestShippedAgents_FindSavedConversations(t *testing.T) {
	agents, _ := LoadAgents([]string{"../.."})
	const id = "1b4e28ba-2fa1-4d2b-883f-0016d3cca427"
	for name, c := range map[string]struct{ file, variable string }{
		"claude":              {".claude/projects/-work-shop/" + id + ".jsonl", ""},
		"claude elsewhere":    {"else where/projects/-work-shop/" + id + ".jsonl", "CLAUDE_CONFIG_DIR=%/else where"},
		"codex":               {".codex/sessions/2026/11/21/rollout-2026-11-21T13-02-59-" + id + ".jsonl", ""},
		"codex elsewhere":     {"x/sessions/2026/11/21/rollout-2026-11-21T13-02-59-" + id + ".jsonl", "CODEX_HOME=%/x"},
		"gemini":              {".gemini/tmp/shop/chats/session-2026-11-21T13-02-1b4e28ba.jsonl", ""},
		"gemini elsewhere":    {"x/.gemini/tmp/shop/chats/session-2026-11-21T13-02-1b4e28ba.json", "GEMINI_CLI_HOME=%/x"},
		"copilot":             {".copilot/session-state/" + id + "/events.jsonl", ""},
		"copilot elsewhere":   {"x/session-state/" + id + "/events.jsonl", "COPILOT_HOME=%/x"},
		"qwen":                {".qwen/projects/-work-shop/chats/" + id + ".jsonl", ""},
		"qwen elsewhere":      {"x/projects/-work-shop/chats/" + id + ".jsonl", "QWEN_HOME=%/x"},
		"qwen's runtime data": {"x/projects/-work-shop/chats/" + id + ".jsonl", "QWEN_RUNTIME_DIR=%/x"},
		"crush":               {"shop/.crush/corral/" + id + "/crush.db", ""},
		"pi":                  {".pi/agent/sessions/--work-shop--/2026-11-26T05-31-28-412Z_" + id + ".jsonl", ""},
		"pi elsewhere":        {"x/sessions/--shop--/2026-11-26T05-31-28-412Z_" + id + ".jsonl", "PI_CODING_AGENT_DIR=%/x"},
		"pi's sessions":       {"x/2026-11-26T05-31-28-412Z_" + id + ".jsonl", "PI_CODING_AGENT_SESSION_DIR=%/x"},
		"kimi":                {".kimi-code/sessions/wd_shop_bebf7ecfa10f/" + id + "/state.json", ""},
		"kimi elsewhere":      {"x/sessions/wd_shop_bebf7ecfa10f/" + id + "/state.json", "KIMI_CODE_HOME=%/x"},
		"droid":               {".factory/sessions/-work-shop/" + id + ".jsonl", ""},
		"cline":               {".cline/data/sessions/" + id + "/" + id + ".json", ""},
		"cline elsewhere":     {"x/sessions/" + id + "/" + id + ".json", "CLINE_DATA_DIR=%/x"},
		"grok":                {".grok/sessions/%2Fwork%2Fshop/" + id + "/updates.jsonl", ""},
		"grok elsewhere":      {"x/sessions/%2Fwork%2Fshop/" + id + "/updates.jsonl", "GROK_HOME=%/x"},
		"vibe":                {".vibe/logs/session/session_20261126_053128_1b4e28ba/messages.jsonl", ""},
		"vibe elsewhere":      {"x/logs/session/session_20261126_053128_1b4e28ba/messages.jsonl", "VIBE_HOME=%/x"},
		"aider":               {"shop/.aider.chat.history." + id + ".md", ""},
	} {
		t.Run(name, func(t *testing.T) {
			home := filepath.Join(t.TempDir(), "[u]ser*")
			agent, _, _ := strings.Cut(name, " ")
			agent, _, _ = strings.Cut(agent, "'")
			s := Specifiers{Conversation: id, Session: "shop", Workspace: filepath.Join(home, "shop"), Home: home}
			holds := func() bool {
				patterns, err := ExpandPatterns(agents[agent].ResumeCondition, s, []string{
					strings.ReplaceAll(c.variable, "%", home),
				})
				require.NoError(t, err)
				return slices.ContainsFunc(patterns, func(p string) bool {
					found, err := filepath.Glob(p)
					require.NoError(t, err)
					return len(found) > 0
				})
			}
			file := filepath.Join(home, c.file)
			require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
			assert.False(t, holds())
			require.NoError(t, os.WriteFile(file, nil, 0o600))
			assert.True(t, holds())
			s.Conversation = "00000000-2fa1-4d2b-883f-0016d3cca427"
			assert.False(t, holds(), "another conversation's")
		})
	}
}

func TestAgent_StopTimeout(t *testing.T) {
	for _, c := range []struct {
		properties []string
		want       time.Duration
	}{
		{nil, 0},
		{[]string{"TimeoutStopSec=5", "TimeoutStopSec=1min 30s"}, 90 * time.Second},
		{[]string{"TimeoutStopSec=soon", "MemoryMax=1G"}, 0},
	} {
		agent := Agent{Properties: c.properties}
		assert.Equal(t, c.want, agent.StopTimeout(), c.properties)
	}
}

func TestAgent_Programs(t *testing.T) {
	for _, c := range []struct {
		agent Agent
		want  []string
	}{
		{Agent{}, nil},
		{Agent{Command: []string{"prog", "-x"}}, []string{"prog"}},
		{Agent{Command: []string{"/bin/sh", "-c", "exec prog"}, Detect: []string{"prog", "prog2"}},
			[]string{"prog", "prog2"}},
	} {
		assert.Equal(t, c.want, c.agent.Programs())
	}
}

func TestFindShare(t *testing.T) {
	root := t.TempDir()
	bin := filepath.Join(root, "prefix/bin")
	for _, name := range []string{"CORRAL_SHARE", "XDG_DATA_HOME", "XDG_DATA_DIRS"} {
		t.Setenv(name, "")
	}
	found := func(dir string) {
		t.Helper()
		assert.Equal(t, filepath.Join(root, dir), FindShare(bin))
	}
	install := func(dir string) { require.NoError(t, os.MkdirAll(filepath.Join(root, dir, "hooks"), 0o755)) }
	found("prefix/share/corral") // the fallback, which does not have to exist
	install("prefix/packaging")
	found("prefix/packaging")
	t.Setenv("XDG_DATA_DIRS", filepath.Join(root, "none")+":"+filepath.Join(root, "dirs"))
	install("dirs/corral")
	found("dirs/corral")
	t.Setenv("XDG_DATA_HOME", filepath.Join(root, "home"))
	install("home/corral")
	found("home/corral")
	install("prefix/share/corral")
	found("prefix/share/corral")
	t.Setenv("CORRAL_SHARE", filepath.Join(root, "wanted"))
	found("wanted")
}
