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

// listOptions are what list shows of which sessions, in which order.
type listOptions struct {
	states, columns, sort, labels []string
}

var listVerb = verb{name: "list", args: "[PATTERN…]", summary: "Show the sessions", pages: true, options: func(f *pflag.FlagSet) action {
	l := &listOptions{}
	f.StringSliceVar(&l.states, "state", nil, "only sessions in one of these `STATES` or activities")
	f.StringArrayVar(&l.labels, "label", nil, "only sessions with this label, `KEY[=VALUE]`; several: with all of them")
	f.StringSliceVar(&l.columns, "columns", nil, "the `COLUMNS` to show, such as id,state,labels")
	f.StringSliceVar(&l.sort, "sort", nil, "sort by `COLUMNS`, by one with - in front in reverse; by id otherwise")
	return l.run
}}

func (l *listOptions) run(ctx context.Context, c *ctl, args []string) error {
	for _, state := range l.states {
		if err := checkStateName(state, "list", "--state"); err != nil {
			return err
		}
	}
	for _, label := range l.labels {
		if strings.HasPrefix(label, "=") || label == "" {
			return usagef("list", "invalid label %q: expected KEY or KEY=VALUE", label)
		}
	}
	columns, err := l.shown(c.full)
	if err != nil {
		return err
	}
	view := c.listView(time.Now())
	compare, err := l.compare(view)
	if err != nil {
		return err
	}
	list, err := c.readList(ctx)
	if err != nil {
		return c.cannot("list sessions", "", err)
	}
	isListed := c.listFilter(list.sessions, args, l.states)
	list.noSessions = len(list.sessions) == 0
	list.sessions = slices.DeleteFunc(list.sessions, func(s client.Session) bool { return !isListed(s) || !l.labelled(s) })
	slices.SortStableFunc(list.sessions, compare)
	if c.wantsJSON() {
		if err := c.printJSON(list.sessions); err != nil {
			return err
		}
		return list.unreachable
	}
	c.printList(list, columns, view)
	return list.unreachable
}

// listView is how list shows sessions, less how their leftovers are counted.
func (c *ctl) listView(now time.Time) listView {
	v := listView{path: func(path string) string { return path }, full: c.full, now: now, leftovers: func(client.Session) int { return 0 }}
	if c.outTTY != nil && !c.full {
		v.path = wording.AbbreviateHome
	}
	return v
}

// checkStateName tells whether an option's word is a state or an activity.
func checkStateName(word, verb, option string) error {
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
	noSessions  bool  // there is no session at all
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
		list.sessions, err = c.sessionsWithRuntimes(ctx, bus)
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

// sessionsWithRuntimes returns everything that is known of all sessions from few calls: that they go
// on running is announced nowhere, and so is not in the answer that has all the rest.
func (c *ctl) sessionsWithRuntimes(ctx context.Context, bus *client.Client) ([]client.Session, error) {
	rows := make(chan []dbusapi.SessionRowEx, 1)
	go func() {
		all, _ := bus.ListSessionsEx(ctx) // an older daemon has none: then it is not known
		rows <- all
	}()
	sessions, err := bus.Sessions(ctx)
	totals := map[string]uint64{}
	for _, row := range <-rows {
		total, _ := row.More["TotalRuntimeUSec"].Value().(uint64)
		totals[row.ID] = total
	}
	for i := range sessions {
		if total, ok := totals[sessions[i].Id]; ok {
			sessions[i].TotalRuntimeUSec = total
		}
	}
	return sessions, err
}

// readTable asks for what a table of sessions shows: of a daemon that does not know the one call
// for it, for everything.
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
		decodeDetails(&s, row.More)
		list.sessions[i] = s
		if row.Leftovers > 0 {
			left[row.ID] = int(row.Leftovers)
		}
	}
	list.leftovers = func(s client.Session) int { return left[s.Id] }
	return list, err
}

// decodeDetails takes what a row has beyond its fields: of an older daemon less than here.
func decodeDetails(s *client.Session, more map[string]dbus.Variant) {
	decodeDetail(more, "Frozen", &s.Frozen)
	decodeDetail(more, "Worktree", &s.Worktree)
	decodeDetail(more, "Repository", &s.Repository)
	decodeDetail(more, "Labels", &s.Labels)
	decodeDetail(more, "TotalRuntimeUSec", &s.TotalRuntimeUSec)
	if program, ok := more["Program"].Value().(string); ok {
		s.Command = []string{program} // all that a table shows of it
	}
	decodeDetail(more, "AttentionMessage", &s.AttentionMessage)
	decodeDetail(more, "AttentionTimestamp", &s.AttentionTimestamp)
	decodeDetail(more, "AttentionAcknowledged", &s.AttentionAcknowledged)
	decodeDetail(more, "Result", &s.Result)
	decodeDetail(more, "ExecMainCode", &s.ExecMainCode)
	decodeDetail(more, "ExecMainStatus", &s.ExecMainStatus)
	decodeDetail(more, "AgentAlive", &s.AgentAlive)
}

func decodeDetail[T any](more map[string]dbus.Variant, name string, target *T) {
	if value, ok := more[name].Value().(T); ok {
		*target = value
	}
}

// listFilter returns whether a session belongs into the list, as a function. A word that is the id of a
// session names that one alone, also if it is archived.
func (c *ctl) listFilter(all []client.Session, words, states []string) func(client.Session) bool {
	ids := map[string]bool{}
	var patterns []string
	for _, word := range words {
		if slices.ContainsFunc(all, func(s client.Session) bool { return s.Id == word }) {
			ids[word] = true
		} else {
			patterns = append(patterns, word)
		}
	}
	return func(s client.Session) bool {
		if len(states) > 0 && !slices.ContainsFunc(states, func(state string) bool { return wording.Matches(s, state) }) {
			return false
		}
		if ids[s.Id] {
			return true
		}
		if s.State == "archived" && !c.all && !slices.Contains(states, "archived") {
			return false
		}
		return len(words) == 0 || slices.ContainsFunc(patterns, func(pattern string) bool {
			ids, err := match(pattern, []known{{id: s.Id}}, true)
			return err == nil && len(ids) == 1
		})
	}
}

// maxQuestionWidth is how many columns of what an agent asks a table shows, also where it is not printed
// on a terminal: a question may have 2048 bytes.
const maxQuestionWidth = 80

func (c *ctl) printList(list sessionList, columns []listColumn, view listView) {
	view.leftovers = list.leftovers
	t := table{}
	for _, column := range columns {
		t.columns = append(t.columns, newColumn(column))
	}
	for _, s := range list.sessions {
		if c.outTTY != nil && !c.plain {
			t.signs = append(t.signs, listSign(s))
		}
		row := make([]cell, len(columns))
		for i, column := range columns {
			row[i] = cell{cmp.Or(column.text(view, s), "-"), cellColour(column.name, s)}
		}
		t.rows = append(t.rows, row)
	}
	if len(t.rows) > 0 {
		c.printTable(t)
	}
	if !c.noLegend {
		if len(t.rows) > 0 {
			fmt.Fprintln(c.out)
		}
		text := footer(list)
		if list.noSessions && c.outTTY != nil {
			text += "\n" + c.there("corralctl run AGENT") + ", or " + c.there("corralctl run -- COMMAND") + ", starts one in this directory."
		}
		fmt.Fprintln(c.out, text)
	}
}

func newColumn(l listColumn) column { return column{title: l.title, shrink: l.least, cut: l.cut} }

// cellColour is the colour of a session's cell in a column.
func cellColour(column string, s client.Session) string {
	colour, rest := wording.StateColour(s), ""
	if colour == wording.Dim {
		rest = wording.Dim
	}
	switch column {
	case "state":
		return colour
	case "activity":
		_, colour := wording.Detail(s)
		return cmp.Or(colour, rest)
	}
	return rest
}

// listSign marks a session that wants to be looked at, as systemctl marks units.
func listSign(s client.Session) cell {
	if !wording.NeedsAttention(s) {
		return cell{text: " "}
	}
	sign, colour := wording.Mark(s)
	return cell{sign, colour}
}

// footer is the line below the table: "7 sessions, 1 waiting, 2 turns ended, 1 failed, 1 stale.
// Lingering is off. 1 problem: corralctl status."
func footer(list sessionList) string {
	counts := map[string]int{}
	for _, s := range list.sessions {
		counts[s.State]++
		switch {
		case wording.IsTurnEnded(s):
			counts["turn ended"]++
		case wording.HasError(s):
			counts["error"]++
		case wording.IsWaiting(s):
			counts["waiting"]++
		case wording.IsSuspendedByShutdown(s):
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
