package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/spf13/pflag"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/dbusapi/client"
)

var listVerb = verb{name: "list", args: "[PATTERN…]", summary: "Show the sessions", pages: true, options: func(f *pflag.FlagSet) action {
	states := f.StringSlice("state", nil, "only sessions in one of these `STATES` or activities")
	return func(ctx context.Context, c *ctl, args []string) error {
		for _, state := range *states {
			if err := knownState(state, "list", "--state"); err != nil {
				return err
			}
		}
		list, err := c.readList(ctx)
		if err != nil {
			return c.cannot("list sessions", "", err)
		}
		list.sessions = slices.DeleteFunc(list.sessions, func(s client.Session) bool { return !c.listed(s, args, *states) })
		if c.wantsJSON() {
			if err := c.printJSON(list.sessions); err != nil {
				return err
			}
			return list.unreachable
		}
		c.printList(list, time.Now())
		return list.unreachable
	}
}}

// knownState tells whether an option's word is a state or an activity.
func knownState(word, verb, option string) error {
	words := append(slices.Clone(sessionStates), waitActivities...)
	if slices.Contains(words, word) {
		return nil
	}
	f := &failure{code: exitUsage, message: fmt.Sprintf("unknown state %q; known are: %s", word, strings.Join(words, " ")), hint: "corralctl help " + verb}
	if near := nearestOf(word, words); near != "" {
		f.hint = fmt.Sprintf("corralctl %s %s=%s", verb, option, near)
	}
	return f
}

// sessionList is what list shows.
type sessionList struct {
	sessions    []client.Session
	leftovers   func(client.Session) int // counts the processes left of one
	lingering   bool
	problems    int
	unreachable error // the daemon could not be asked: the sessions are those of the disk
}

// readList asks the daemon, with two calls under way at once, or else reads what is saved.
func (c *ctl) readList(ctx context.Context) (sessionList, error) {
	bus, err := c.connect(ctx)
	if err != nil {
		return c.savedList("list sessions", err)
	}
	properties := make(chan client.Manager, 1)
	go func() {
		manager, _ := bus.Manager(ctx) // without it, nothing is said about lingering
		properties <- manager
	}()
	var list sessionList
	if c.wantsJSON() {
		list.sessions, err = bus.Sessions(ctx)
	} else {
		list, err = c.readTable(ctx, bus)
	}
	if err != nil {
		return c.savedList("list sessions", err)
	}
	manager := <-properties
	list.lingering = manager.Lingering || manager.Version == ""
	list.problems = len(manager.Problems)
	return list, nil
}

// readTable asks for what a table of sessions shows: of a daemon that does not know the one call for it, for everything.
func (c *ctl) readTable(ctx context.Context, bus *client.Client) (sessionList, error) {
	rows, err := bus.ListSessionsEx(ctx)
	if dbusapi.ShortErrorName(err) == dbusapi.UnknownMethod {
		sessions, err := bus.Sessions(ctx)
		return sessionList{sessions: sessions, leftovers: c.left}, err
	}
	list := sessionList{sessions: make([]client.Session, len(rows))}
	left := make(map[string]int)
	for i, row := range rows {
		s := client.Session{
			Id: row.ID, Agent: row.Agent, State: row.State, Activity: row.Activity, Attention: row.Attention, Reason: row.Reason,
			WorkingDirectory: row.Workspace, Description: row.Description, Unit: row.Unit, StateChangeTimestamp: row.StateChange, OnLogin: row.OnLogin,
			IdleHint: row.Activity == "idle", IdleSinceHint: row.ActiveSince,
		}
		takeMore(&s, row.More)
		list.sessions[i] = s
		if row.Leftovers > 0 {
			left[row.ID] = int(row.Leftovers)
		}
	}
	list.leftovers = func(s client.Session) int { return left[s.Id] }
	return list, err
}

// takeMore takes what a row has beyond its fields: of an older daemon less than here.
func takeMore(s *client.Session, more map[string]dbus.Variant) {
	take(more, "Frozen", &s.Frozen)
	take(more, "Worktree", &s.Worktree)
	take(more, "AttentionMessage", &s.AttentionMessage)
	take(more, "AttentionTimestamp", &s.AttentionTimestamp)
	take(more, "AttentionAcknowledged", &s.AttentionAcknowledged)
	take(more, "Result", &s.Result)
	take(more, "ExecMainCode", &s.ExecMainCode)
	take(more, "ExecMainStatus", &s.ExecMainStatus)
	take(more, "AgentAlive", &s.AgentAlive)
}

func take[T any](more map[string]dbus.Variant, name string, target *T) {
	if value, ok := more[name].Value().(T); ok {
		*target = value
	}
}

// listed tells whether a session belongs into the list.
func (c *ctl) listed(s client.Session, patterns, states []string) bool {
	if len(states) > 0 && !slices.ContainsFunc(states, func(word string) bool { return wording.Matches(s, word) }) {
		return false
	}
	named := slices.Contains(patterns, s.Id)
	if s.State == "archived" && !c.all && !named && !slices.Contains(states, "archived") {
		return false
	}
	if len(patterns) == 0 || named {
		return true
	}
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		ids, err := match(pattern, []known{{id: s.Id}}, true)
		return err == nil && len(ids) == 1
	})
}

// maxDetail is how many columns of what an agent asks a table shows, also where it is not printed on
// a terminal: a question may have 2048 bytes.
const maxDetail = 80

func (c *ctl) printList(list sessionList, now time.Time) {
	t := table{columns: []column{
		{title: "ID", shrink: 16, cut: wording.Ellipsize},
		{title: "AGENT", shrink: 6, cut: wording.Ellipsize},
		{title: "STATE", shrink: 9, cut: wording.Ellipsize},
		{title: "ACTIVITY", shrink: 9, cut: wording.EllipsizeDetail},
		{title: "SINCE"},
		{title: "WORKSPACE", shrink: 9, cut: wording.EllipsizePath},
	}}
	for _, s := range list.sessions {
		workspace := s.WorkingDirectory
		if c.outTTY != nil && !c.full {
			workspace = wording.Workspace(workspace)
		}
		colour := wording.StateColour(s)
		rest := ""
		if colour == wording.Dim {
			rest = wording.Dim
		}
		detail, detailColour := wording.Detail(s)
		if !c.full {
			detail = wording.EllipsizeDetail(detail, maxDetail)
		}
		if c.outTTY != nil && !c.plain {
			t.signs = append(t.signs, listSign(s))
		}
		t.rows = append(t.rows, []cell{
			{s.Id, rest},
			{s.Agent, rest},
			{wording.State(s, list.leftovers), colour},
			{detail, cmp.Or(detailColour, rest)},
			{wording.Since(s, now), rest},
			{wording.OnBranch(workspace, s.Worktree), rest},
		})
	}
	if len(t.rows) > 0 {
		c.printTable(t)
	}
	if !c.noLegend {
		if len(t.rows) > 0 {
			fmt.Fprintln(c.out)
		}
		fmt.Fprintln(c.out, footer(list))
	}
}

// listSign marks a session that wants to be looked at, as systemctl marks units.
func listSign(s client.Session) cell {
	if !wording.WantsAttention(s) {
		return cell{text: " "}
	}
	sign, colour := wording.Mark(s)
	return cell{sign, colour}
}

// footer is the line below the table: "7 sessions, 1 waiting, 2 turns ended, 1 failed, 1 stale. Lingering is off. 1 problem: corralctl status."
func footer(list sessionList) string {
	counts := map[string]int{}
	for _, s := range list.sessions {
		counts[s.State]++
		switch {
		case wording.TurnEnded(s):
			counts["turn ended"]++
		case wording.ShowsError(s):
			counts["error"]++
		case wording.Waits(s):
			counts["waiting"]++
		case wording.SuspendedByShutdown(s):
			counts["interrupted"]++
		}
	}
	parts := []string{wording.Plural(len(list.sessions), "session")}
	for _, word := range []string{"waiting", "turn ended", "error", "failed", "stale", "orphaned"} {
		switch {
		case counts[word] == 0:
		case word == "turn ended":
			parts = append(parts, wording.TurnsEnded(counts[word]))
		case word == "error":
			parts = append(parts, wording.Plural(counts[word], word))
		default:
			parts = append(parts, fmt.Sprintf("%d %s", counts[word], word))
		}
	}
	text := strings.Join(parts, ", ") + "."
	if n := counts["interrupted"]; n > 0 && list.unreachable == nil {
		text += fmt.Sprintf(" %d suspended by the shutdown: corralctl resume --all brings ", n)
		if n == 1 {
			text += "it back."
		} else {
			text += "them back."
		}
	}
	if list.unreachable == nil && !list.lingering {
		text += " Lingering is off."
	}
	if list.problems > 0 {
		text += " " + wording.Plural(list.problems, "problem") + ": corralctl status."
	}
	return text
}
