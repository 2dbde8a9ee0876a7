package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/dbusapi/client"
)

func TestMatch_AcceptsIDsPrefixesAndPatterns(t *testing.T) {
	sessions := []dbusapi.SessionRow{{ID: "api"}, {ID: "fix"}, {ID: "fix-auth"}, {ID: "fix-docs"},
		{ID: "old", State: "archived"}, {ID: "shop"}}
	for _, row := range []struct {
		name, word string
		all        bool
		want       []string
		code       int
	}{
		{name: "a full id", word: "fix-auth", want: []string{"fix-auth"}},
		{name: "a full id that others begin with", word: "fix", want: []string{"fix"}},
		{name: "a prefix", word: "sh", want: []string{"shop"}},
		{name: "a prefix of several", word: "fix-", code: exitFailed},
		{name: "a pattern", word: "fix*", want: []string{"fix", "fix-auth", "fix-docs"}},
		{name: "a pattern with a set", word: "[as]*", want: []string{"api", "shop"}},
		{name: "a pattern without a match", word: "x*", code: exitNoSession},
		{name: "an invalid pattern", word: "[", code: exitUsage},
		{name: "an empty word", word: "", code: exitNoSession},
		{name: "no such session", word: "../../etc", code: exitNoSession},
		{name: "an archived session, full id", word: "old", want: []string{"old"}},
		{name: "an archived session, prefix", word: "ol", code: exitNoSession},
		{name: "an archived session, with --all", word: "o*", all: true, want: []string{"old"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			ids, err := match(row.word, sessions, row.all)
			assert.Equal(t, row.want, ids)
			if row.code == 0 {
				require.NoError(t, err)
				return
			}
			var f *failure
			require.ErrorAs(t, err, &f)
			assert.Equal(t, row.code, f.code)
		})
	}
}

// Among sessions of several hosts, an id without a host is never resolved by chance.
func TestMatch_NeverGuessesTheHost(t *testing.T) {
	sessions := []dbusapi.SessionRow{
		{ID: "gpu:shop"}, {ID: "gpu:site"}, {ID: "build:shop"}, {ID: "build:shopping"}, {ID: "build:old", State: "archived"},
		{ID: "api"}, {ID: "gpu:api"},
	}
	for _, row := range []struct {
		word string
		want []string
		text string // of the error
	}{
		{"gpu:shop", []string{"gpu:shop"}, ""},
		{"build:shop", []string{"build:shop"}, ""},
		{"gpu:sh", []string{"gpu:shop"}, ""},
		{"gpu:s", nil, "ambiguous id: matches gpu:shop, gpu:site"},
		{"shop", nil, "ambiguous id: matches gpu:shop, build:shop"},
		{"shoppi", []string{"build:shopping"}, ""},
		{"site", []string{"gpu:site"}, ""},
		{"old", []string{"build:old"}, ""},
		{"ol", nil, "no such session"},
		{"api", []string{"api"}, ""}, // as it is listed: this machine's
		{"ap", nil, "ambiguous id: matches api, gpu:api"},
		{"sh*", []string{"gpu:shop", "build:shop", "build:shopping"}, ""},
		{"gpu:*", []string{"gpu:shop", "gpu:site", "gpu:api"}, ""},
		{"*", []string{"gpu:shop", "gpu:site", "build:shop", "build:shopping", "api", "gpu:api"}, ""},
		{"gpu:", nil, "no such session"},
		{"gpu", nil, "no such session"},
		{":shop", nil, "no such session"},
		{"a:gpu:shop", nil, "no such session"},
	} {
		ids, err := match(row.word, sessions, false)
		assert.Equal(t, row.want, ids, row.word)
		if row.text == "" {
			require.NoError(t, err, row.word)
		} else {
			require.EqualError(t, err, row.text, row.word)
		}
	}
}

func TestNearest_SuggestsASimilarID(t *testing.T) {
	sessions := []dbusapi.SessionRow{{ID: "fix-auth"}, {ID: "fix-docs"}, {ID: "old", State: "archived"}, {ID: "shop"}}
	for word, want := range map[string]string{"fix-atuh": "fix-auth", "fxi-docs": "fix-docs", "shpo": "shop", "ols": "",
		"s": "", "xyzzy": "", "../../etc": ""} {
		assert.Equal(t, want, nearestID(word, sessions), word)
	}
	assert.Empty(t, nearestID(strings.Repeat("x", 1<<20), sessions), "what cannot be an id is not compared")
}

func TestOptionError_NamesTheOptionAsTyped(t *testing.T) {
	for _, row := range []struct{ args, message, hint string }{
		{"list --stat=failed", `unknown option "--stat"`, "corralctl list --state"},
		{"list --xyzzy", `unknown option "--xyzzy"`, "corralctl help list"},
		{"list -x", `unknown option "-x"`, "corralctl help list"},
		{"list -lx", `unknown option "-x"`, "corralctl help list"},
		{"--pain list", `unknown option "--pain"`, "corralctl --plain"},
		{"-qH desk lsit", `unknown verb "lsit"`, "corralctl list"},
		{"--state failed list", `unknown option "--state"`, "corralctl help"},
		{"stop --timeout", "--timeout needs a TIME", "corralctl help stop"},
		{"stop --timeout=soon", `invalid value "soon" for --timeout: expected a time such as 90`, "corralctl help stop"},
		{"logs -n many", `invalid value "many" for --lines: expected a number`, "corralctl help logs"},
		{"list --quiet=perhaps", `invalid value "perhaps" for --quiet: expected true or false`, "corralctl help list"},
	} {
		c, _ := capture(t)
		err := c.dispatch(t.Context(), strings.Fields(row.args))
		var f *failure
		require.ErrorAs(t, err, &f, row.args)
		assert.Equal(t, exitUsage, f.code)
		assert.Contains(t, f.message, row.message)
		assert.Equal(t, row.hint, f.hint, row.args)
	}
}

func TestNearestVerb_SuggestsASimilarVerb(t *testing.T) {
	c, _ := capture(t)
	c.commands = c.newCommands()
	for word, want := range map[string]string{
		"lsit": "list", "lst": "list", "stat": "status", "strt": "start", "resumee": "resume", "killl": "kill", "rmm": "rm",
		"xyzzy": "", "q": "",
	} {
		assert.Equal(t, want, c.nearestVerb(word), word)
	}
}

func TestCallerEnvironment_ExcludesTerminalAndLoginVariables(t *testing.T) {
	passed := callerEnvironment([]string{
		"PATH=/usr/bin", "ANTHROPIC_API_KEY=k", "LANG=C.UTF-8", "SSH_AUTH_SOCK=/s", "DISPLAY=:0", "XDG_CONFIG_HOME=/c",
		"EMPTY=", "LINES_OF_CODE=1",
		"HOME=/h", "USER=u", "XDG_RUNTIME_DIR=/r", "DBUS_SESSION_BUS_ADDRESS=b", "TERM=xterm", "TMUX=t", "TMUX_PANE=p",
		"STY=s", "TERM_PROGRAM_VERSION=1",
		"NOTIFY_SOCKET=n", "WATCHDOG_USEC=1", "LISTEN_FDS=1", "CLAUDECODE=1", "CODEX_THREAD_ID=1", "PWD=/", "SHLVL=1", "_=x",
		"COLUMNS=80", "LINES=24",
		"BASH_FUNC_f%%=() { :; }", "NOTTEXT=\xff", "no-name=1", "=x", "NOVALUE",
	})
	assert.Equal(t, []string{
		"PATH=/usr/bin", "ANTHROPIC_API_KEY=k", "LANG=C.UTF-8", "SSH_AUTH_SOCK=/s", "DISPLAY=:0", "XDG_CONFIG_HOME=/c",
		"EMPTY=", "LINES_OF_CODE=1",
	}, passed)
}

func TestAttachEnvironment_UnsetsTMUX(t *testing.T) {
	assert.Equal(t, []string{"PATH=/bin", "TERM=xterm", "A=new"},
		attachEnvironment([]string{"PATH=/bin", "TMUX=/tmp/x,1,2", "TMUX_PANE=%1", "A=old", "TERM=xterm"}, []string{"A=new"}))
}

func TestParseSignal_AcceptsNamesAndNumbers(t *testing.T) {
	for text, want := range map[string]int{"9": 9, "KILL": 9, "sigkill": 9, "SIGTERM": 15, "USR1": 10, "RTMIN": 34,
		"SIGRTMIN+3": 37, "64": 64} {
		signal, err := parseSignal(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, int(signal), text)
	}
	for _, text := range []string{"", "0", "65", "-9", "SIGFOO", "RTMIN+31", "RTMIN+", "RTMINx"} {
		_, err := parseSignal(text)
		assert.Error(t, err, text)
	}
}

func TestWait_ExitCodeOfEachResult(t *testing.T) {
	for name, row := range map[string]struct {
		session client.Session
		code    int
	}{
		"completed": {client.Session{State: "completed", ExecMainCode: 1}, 0},
		"exit 3":    {client.Session{State: "failed", Result: "exit-code", ExecMainCode: 1, ExecMainStatus: 3}, 3},
		"killed":    {client.Session{State: "failed", Result: "signal", ExecMainCode: 2, ExecMainStatus: 9}, 137},
		"dumped": {client.Session{State: "failed", Result: "core-dump", ExecMainCode: 3,
			ExecMainStatus: 11}, 139},
		"stopped":              {client.Session{State: "stopped", ExecMainCode: 2, ExecMainStatus: 15}, 3},
		"suspended":            {client.Session{State: "suspended"}, 3},
		"could not be started": {client.Session{State: "failed", Result: "start-failed"}, 1},
		"lost":                 {client.Session{State: "failed", Result: "session-lost"}, 1},
		"timeout with exit 0":  {client.Session{State: "failed", Result: "timeout", ExecMainCode: 1}, 1},
	} {
		assert.Equal(t, row.code, endCode(row.session), name)
	}
}
