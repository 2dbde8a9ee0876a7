package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/dbusapi/word"
)

// listOptions select the sessions that list shows, their columns and their order.
type listOptions struct {
	states, columns, sort, labels []string
	tree                          bool
}

var listVerb = verb{
	name: "list", args: "[PATTERN…]", summary: "Show the sessions", pages: true,
	options: func(f *pflag.FlagSet) action {
		l := &listOptions{}
		f.StringSliceVar(&l.states, "state", nil, "only sessions in one of these `STATES` or activities")
		f.StringArrayVar(&l.labels, "label", nil, "only sessions with this label, `KEY[=VALUE]`; several: with all of them")
		f.StringSliceVar(&l.columns, "columns", nil, "the `COLUMNS` to show, such as id,state,labels")
		f.StringSliceVar(&l.sort, "sort", nil, "sort by `COLUMNS`, by one with - in front in reverse; by id otherwise")
		f.BoolVar(&l.tree, "tree", false, "show each session below the one that has created it")
		return l.run
	},
}

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
	columns, err := l.selectedColumns(c.full)
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
		return err
	}
	isListed := c.listFilter(list.sessions, args, l.states)
	list.noSessions = len(list.sessions) == 0
	list.sessions = slices.DeleteFunc(list.sessions,
		func(s client.Session) bool { return !isListed(s) || !l.hasLabels(s) })
	slices.SortStableFunc(list.sessions, compare)
	if c.wantsJSON() {
		if err := c.printJSON(list.sessions); err != nil {
			return err
		}
		return list.unreachable
	}
	if l.tree {
		list.sessions, view.branches = c.arrangeAsTree(list.sessions, list.parents)
	}
	c.printList(list, columns, view)
	return list.unreachable
}

// listView returns how list shows sessions, except for how their leftovers are counted.
func (c *ctl) listView(now time.Time) listView {
	v := listView{
		path: func(path string) string { return path }, full: c.full, now: now,
		leftovers: func(client.Session) int { return 0 },
	}
	if c.outTTY != nil && !c.full {
		v.path = wording.AbbreviateHome
	}
	return v
}

// checkStateName returns an error if an option's value is neither a state nor an activity.
func checkStateName(word, verb, option string) error {
	if slices.Contains(statesAndActivities, word) {
		return nil
	}
	return unknownWordError("state", word, statesAndActivities, verb, option)
}

// unknownWordError returns the error for an option's value that is none of the known words. Its
// hint is the word that was probably meant.
func unknownWordError(what, word string, known []string, verb, option string) error {
	f := &failure{exitUsage, fmt.Sprintf("unknown %s %q; known are: %s", what, word, strings.Join(known, " ")),
		"corralctl help " + verb}
	if near := nearestWord(word, known); near != "" {
		f.hint = fmt.Sprintf("corralctl %s %s=%s", verb, option, near)
	}
	return f
}

// sessionList is what list shows.
type sessionList struct {
	sessions    []client.Session
	leftovers   func(client.Session) int // the number of a session's leftover processes
	parents     map[string]string        // see parentsOf; only for a table
	lingering   bool
	problems    int
	noSessions  bool  // there are no sessions at all
	unreachable error // why the daemon could not be queried; sessions are those on disk
}

// readList queries the daemon with two calls in parallel, or else reads the saved sessions.
func (c *ctl) readList(ctx context.Context) (sessionList, error) {
	bus, err := c.connect(ctx)
	if err != nil {
		return c.savedList("list sessions", err)
	}
	properties := make(chan client.Manager, 1)
	go func() {
		manager, _ := bus.Manager(ctx) // if this fails, the footer does not mention lingering
		properties <- manager
	}()
	var list sessionList
	if c.wantsJSON() {
		list.sessions, err = c.sessionsWithRuntimes(ctx, bus)
	} else {
		list, err = c.readTable(ctx)
	}
	if err != nil {
		return c.savedList("list sessions", err)
	}
	manager := <-properties
	list.lingering = manager.Lingering || manager.Version == ""
	list.problems = len(manager.Problems)
	return list, nil
}

// sessionsWithRuntimes returns all properties of all sessions with few calls. The total runtime
// comes from a call of its own: no signal announces that it grows, so the answer with all other
// properties lacks it.
func (c *ctl) sessionsWithRuntimes(ctx context.Context, bus *client.Client) ([]client.Session, error) {
	rows := make(chan []dbusapi.SessionRowEx, 1)
	go func() {
		all, _ := bus.ListSessionsEx(ctx) // without them the runtimes are unknown
		rows <- all
	}()
	sessions, err := bus.Sessions(ctx)
	err = c.tolerate(err)
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

// readTable queries what a table of sessions shows with one call.
func (c *ctl) readTable(ctx context.Context) (sessionList, error) {
	bus, err := c.connect(ctx)
	if err != nil {
		return sessionList{}, err
	}
	rows, err := bus.ListSessionsEx(ctx)
	err = c.tolerate(err)
	list := sessionList{sessions: make([]client.Session, len(rows))}
	leftovers := make(map[string]int)
	for i, row := range rows {
		s := client.Session{
			Id: row.ID, Agent: row.Agent, Description: row.Description, WorkingDirectory: row.Workspace,
			State: row.State, StateChangeTimestamp: row.StateChange, Reason: row.Reason,
			Activity: row.Activity, Attention: row.Attention, Unit: row.Unit, OnLogin: row.OnLogin,
			IdleHint: row.Activity == word.Idle, IdleSinceHint: row.ActiveSince,
		}
		if more := client.Properties(row.More).Decode(&s); more != nil {
			err = more
		}
		if program, ok := row.More["Program"].Value().(string); ok {
			s.Command = []string{program} // a table shows no more of it
		}
		list.sessions[i] = s
		if row.Leftovers > 0 {
			leftovers[row.ID] = int(row.Leftovers)
		}
	}
	client.NumberQueue(list.sessions)
	list.parents = parentsOf(list.sessions)
	slices.SortFunc(list.sessions, func(a, b client.Session) int { return strings.Compare(a.Id, b.Id) })
	list.leftovers = func(s client.Session) int { return leftovers[s.Id] }
	return list, err
}

// listFilter returns a function that reports whether a session belongs in the list. A word that is
// the id of a session names only that one, even if it is archived.
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
		if s.State == word.Archived && !c.all && !slices.Contains(states, word.Archived) {
			return false
		}
		return len(words) == 0 || slices.ContainsFunc(patterns, func(pattern string) bool {
			ids, err := match(pattern, []dbusapi.SessionRow{{ID: s.Id}}, true)
			return err == nil && len(ids) == 1
		})
	}
}

// maxQuestionWidth is how many columns of an agent's question a table shows, also if it is not
// printed on a terminal: a question may have 2048 bytes.
const maxQuestionWidth = 80

func (c *ctl) printList(list sessionList, columns []listColumn, view listView) {
	view.leftovers = list.leftovers
	t := table{}
	for _, column := range columns {
		t.columns = append(t.columns, newColumn(column))
	}
	for _, s := range list.sessions {
		if c.outTTY != nil && !c.plain {
			t.marks = append(t.marks, listSign(s))
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
			text += "\n" + c.withHost("corralctl run AGENT") + ", or " + c.withHost("corralctl run -- COMMAND") +
				", starts one in this directory."
		}
		fmt.Fprintln(c.out, text)
	}
}

func newColumn(l listColumn) column { return column{title: l.title, minWidth: l.minWidth, cut: l.cut} }

// cellColour returns the colour of a session's cell in a column.
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

// listSign marks a session that needs attention, as systemctl marks units.
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
		case s.QueuedTimestamp != 0:
			counts[wording.QueuedWord]++
		case wording.IsTurnEnded(s):
			counts[word.TurnEnded]++
		case wording.HasError(s):
			counts[word.Error]++
		case wording.IsLimited(s):
			counts[word.Limit]++
		case wording.IsWaiting(s):
			counts[word.Waiting]++
		case wording.IsSuspendedByShutdown(s):
			counts["interrupted"]++
		}
	}
	parts := []string{wording.Plural(len(list.sessions), "session")}
	for _, what := range []string{
		word.Waiting, word.TurnEnded, word.Limit, word.Error, word.Failed, word.Stale, word.Orphaned, wording.QueuedWord,
	} {
		switch n := counts[what]; {
		case n == 0:
		case what == word.TurnEnded:
			parts = append(parts, wording.TurnsEnded(n))
		case what == word.Limit:
			parts = append(parts, wording.Limited(n))
		case what == word.Error:
			parts = append(parts, wording.Plural(n, what))
		default:
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
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
