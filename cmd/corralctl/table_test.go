package main

import (
	"bufio"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/cmd/corralctl/hosts"
	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi/client"
)

func TestTable_FitsTheTerminal(t *testing.T) {
	wide := table{
		columns: []column{{title: "ID"}, {title: "STATE", minWidth: 5, cut: wording.Ellipsize},
			{title: "WORKSPACE", minWidth: 9, cut: wording.EllipsizePath}},
		rows: [][]cell{{{text: "a-long-identifier"}, {text: "running"}, {text: "/home/anna/src/漢字"}},
			{{text: "b"}, {text: "失敗"}, {text: "/"}}},
	}
	for _, row := range []struct {
		width int
		want  string
	}{
		{80, "ID                STATE   WORKSPACE\na-long-identifier running /home/anna/src/漢字\nb                 失敗    /\n"},
		{40, "ID                STATE   WORKSPACE\na-long-identifier running …anna/src/漢字\nb                 失敗    /\n"},
		{34, "ID                STATE  WORKSPACE\na-long-identifier runni… …src/漢字\nb                 失敗   /\n"},
		{5, "ID                STATE WORKSPACE\na-long-identifier runn… …src/漢字\nb                 失敗  /\n"},
	} {
		c, output := capture(t)
		c.outTTY = &terminal{width: row.width}
		c.printTable(wide)
		assert.Equal(t, row.want, output(), "%d columns", row.width)
	}
}

func printList(t *testing.T, c *ctl, list sessionList, now time.Time, l listOptions) {
	t.Helper()
	columns, err := l.selectedColumns(c.full)
	require.NoError(t, err)
	view := c.listView(now)
	compare, err := l.compare(view)
	require.NoError(t, err)
	slices.SortStableFunc(list.sessions, compare)
	c.printList(list, columns, view)
}

func TestList_PrintsEachKindOfSession(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) uint64 { return uint64(now.Add(-d).UnixMicro()) }
	list := sessionList{lingering: false, leftovers: func(client.Session) int { return 0 }, sessions: []client.Session{
		{Id: "api", Agent: "codex", State: "running", Activity: "idle", IdleHint: true, IdleSinceHint: ago(135 * time.Second),
			// the clock was set back
			StateChangeTimestamp: ago(time.Hour), Timestamp: ago(-time.Hour), WorkingDirectory: "/src/api"},

		{Id: "docs", Agent: "claude", State: "running", Activity: "waiting", Attention: "permission",
			AttentionMessage:   "Run rm -rf build?",
			AttentionTimestamp: ago(12 * time.Second), StateChangeTimestamp: ago(90 * time.Second),
			WorkingDirectory: "/src/docs"},
		{Id: "done", Agent: "claude", State: "running", Activity: "idle", Attention: "turn-ended",
			AttentionMessage: "finished task", IdleHint: true,
			IdleSinceHint: ago(time.Minute), AttentionTimestamp: ago(time.Minute), StateChangeTimestamp: ago(90 * time.Second),
			WorkingDirectory: "/src/docs"},
		{Id: "fix-auth", Agent: "command", State: "failed", Activity: "unknown", Result: "exit-code", ExecMainCode: 1,
			ExecMainStatus:       3,
			StateChangeTimestamp: ago(26 * time.Hour), WorkingDirectory: "/src/with\x1b[31m escape"},
		{Id: "off", Agent: "claude", State: "suspended", EndCause: "shutdown", Reason: "the machine was shut down",
			StateChangeTimestamp: ago(time.Second), WorkingDirectory: "/src/off"},
		{Id: "shop", Agent: "claude", State: "stale", AgentAlive: true, StateChangeTimestamp: ago(time.Second),
			WorkingDirectory: "/src/shop"},
	}}
	c, output := capture(t)
	printList(t, c, list, now, listOptions{})
	assert.Equal(t, strings.TrimPrefix(`
ID       AGENT   STATE     ACTIVITY                               SINCE  WORKSPACE
api      codex   running   idle                                   2m 15s /src/api
docs     claude  running   waiting: permission: Run rm -rf build? 12s    /src/docs
done     claude  running   turn ended: finished task              1m     /src/docs
fix-auth command failed    exit 3                                 1d 2h  /src/with\x1b[31m escape
off      claude  suspended shutdown                               1s     /src/off
shop     claude  stale     tmux died, agent running               1s     /src/shop

6 sessions, 1 waiting, 1 turn ended, 1 failed, 1 stale. 1 suspended by the shutdown: corralctl resume --all brings it back. Lingering is off.
`, "\n"), output())
}

// TestList_KeepsReasonsAtEightyColumns: the reason of a failure and the agent's question are not
// shortened.
func TestList_KeepsReasonsAtEightyColumns(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	at := uint64(now.Add(-26 * time.Hour).UnixMicro())
	list := sessionList{lingering: true, leftovers: func(client.Session) int { return 0 }, sessions: []client.Session{
		{Id: "my-project", Agent: "command", State: "running", Activity: "waiting", Attention: "permission",
			AttentionMessage:   "Run rm -rf build?",
			AttentionTimestamp: at, WorkingDirectory: "/home/anna/src/my-project"},
		{Id: "my-project-2", Agent: "command", State: "failed", Result: "core-dump", ExecMainStatus: 11,
			StateChangeTimestamp: at, WorkingDirectory: "/home/anna/src/my-project"},
		{Id: "my-project-3", Agent: "command", State: "failed", Result: "exit-code", ExecMainStatus: 3,
			StateChangeTimestamp: at, WorkingDirectory: "/home/anna/src/my-project"},
		{Id: "my-project-4", Agent: "command", State: "running", Activity: "idle", Attention: "error",
			AttentionMessage: "529 overloaded", AttentionTimestamp: at,
			WorkingDirectory: "/home/anna/src/my-project"},
	}}
	c, output := capture(t)
	c.outTTY = &terminal{width: 80}
	printList(t, c, list, now, listOptions{})
	assert.Equal(t, strings.TrimPrefix(`
  ID           AGENT   STATE   ACTIVITY                          SINCE WORKSPACE
● my-project   command running permission: Run rm -rf build?     1d 2h …-project
● my-project-2 command failed  SIGSEGV (core)                    1d 2h …-project
● my-project-3 command failed  exit 3                            1d 2h …-project
● my-project-4 command running error: 529 overloaded             1d 2h …-project

4 sessions, 1 waiting, 1 error, 2 failed.
`, "\n"), output())
}

// TestLeftovers_AreNotCountedForARemoteHost: control groups of another machine can have the same
// names as those here.
func TestLeftovers_AreNotCountedForARemoteHost(t *testing.T) {
	text, err := os.ReadFile("/proc/self/cgroup")
	require.NoError(t, err)
	_, group, found := strings.Cut(strings.TrimSpace(string(text[strings.LastIndex(string(text), "0::"):])), "::")
	require.True(t, found)
	s := client.Session{ControlGroup: group}
	assert.Positive(t, new(ctl).leftovers(s))
	assert.Zero(t, (&ctl{hosts: []hosts.Host{{Destination: "anna@desk"}}}).leftovers(s))
}

// capture returns a ctl whose stdout is kept in memory, and a function that returns it.
func capture(t *testing.T) (c *ctl, output func() string) {
	t.Helper()
	var text strings.Builder
	c = &ctl{err: os.Stderr}
	c.out = bufio.NewWriter(&text)
	return c, func() string {
		require.NoError(t, c.out.Flush())
		return text.String()
	}
}

// TestList_Columns checks the columns, their sort order, and the name of each kind of session.
func TestList_Columns(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) uint64 { return uint64(now.Add(-d).UnixMicro()) }
	microseconds := func(d time.Duration) uint64 { return uint64(d.Microseconds()) }
	sessions := []client.Session{
		{Id: "proj5", Agent: "command", Command: []string{"/usr/bin/vim", "x"}, State: "running", Activity: "working",
			StateChangeTimestamp: ago(time.Hour),
			TotalRuntimeUSec:     microseconds(90 * time.Minute), Description: "notes",
			Labels: map[string]string{"team": "web", "urgent": ""}, WorkingDirectory: "/src/proj",
			OnLogin: "resume", Unit: "app-corral-command-proj5.scope"},
		{Id: "proj46", Agent: "claude", State: "created", Timestamp: ago(time.Minute), WorkingDirectory: "/src/proj",
			OnLogin: "ignore"},
		{Id: "fix-auth", Agent: "claude", State: "completed", StateChangeTimestamp: ago(time.Second),
			TotalRuntimeUSec: microseconds(5 * time.Second),
			WorkingDirectory: "/home/a/.local/share/corral/worktrees/fix-auth/sub", Worktree: "fix-auth",
			Repository: "/src/shop", Labels: map[string]string{"team": "api"}},
	}
	for _, row := range []struct {
		name string
		full bool
		l    listOptions
		want string
	}{
		{"by themselves", false, listOptions{}, `
ID       AGENT  STATE     ACTIVITY SINCE WORKSPACE
fix-auth claude completed -        1s    /src/shop (fix-auth)
proj5    vim    running   working  1h    /src/proj
proj46   claude created   -        1m    /src/proj
`},
		{"with --full", true, listOptions{sort: []string{"total"}}, `
ID       AGENT  STATE     ACTIVITY SINCE TOTAL TIME WORKSPACE            DESCRIPTION
proj46   claude created   -        1m    -          /src/proj            -
fix-auth claude completed -        1s    5s         /src/shop (fix-auth) -
proj5    vim    running   working  1h    1h 30m     /src/proj            notes
`},
		{"those that were asked for, by two of them", false,
			listOptions{columns: []string{"labels", "ID", "branch", "directory"}, sort: []string{"agent", "-id"}}, `
LABELS           ID       BRANCH   DIRECTORY
-                proj46   -        /src/proj
team=api         fix-auth fix-auth /home/a/.local/share/corral/worktrees/fix-auth/sub
team=web,urgent= proj5    -        /src/proj
`},
		{"the latest change last", false, listOptions{columns: []string{"since", "login", "unit"}, sort: []string{"-since"}},
			`
SINCE AT LOGIN UNIT
1h    resume   app-corral-command-proj5.scope
1m    ignore   -
1s    -        -
`},
	} {
		t.Run(row.name, func(t *testing.T) {
			c, output := capture(t)
			c.full = row.full
			list := sessionList{lingering: true, sessions: slices.Clone(sessions),
				leftovers: func(client.Session) int { return 0 }}
			printList(t, c, list, now, row.l)
			assert.Equal(t, strings.TrimPrefix(row.want, "\n")+"\n3 sessions.\n", output())
		})
	}
	labelled := func(labels ...string) (ids []string) {
		l := listOptions{labels: labels}
		for _, s := range sessions {
			if l.hasLabels(s) {
				ids = append(ids, s.Id)
			}
		}
		return ids
	}
	assert.Equal(t, []string{"proj5", "fix-auth"}, labelled("team"))
	assert.Equal(t, []string{"proj5"}, labelled("team=web", "urgent"))
	assert.Empty(t, labelled("team=we"))
}

// TestList_NamesTheRepositoryAtEightyColumns: the path of a worktree is too long to show what
// distinguishes it.
func TestList_NamesTheRepositoryAtEightyColumns(t *testing.T) {
	t.Setenv("HOME", "/home/alice")
	c, output := capture(t)
	c.outTTY = &terminal{width: 80}
	list := sessionList{lingering: true, leftovers: func(client.Session) int { return 0 }, sessions: []client.Session{{
		Id: "fix-auth", Agent: "claude", State: "running", Activity: "waiting", Attention: "permission",
		AttentionMessage: "Run rm?", WorkingDirectory: "/home/alice/.local/share/corral/worktrees/fix-auth",
		Worktree: "fix-auth", Repository: "/home/alice/src/repo",
	}}}
	printList(t, c, list, time.Now(), listOptions{})
	assert.Contains(t, output(), "/repo (fix-auth)")
}
