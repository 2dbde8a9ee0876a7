package top

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/dbusapi/word"
)

// column is a column of the list.
type column struct {
	name       string // in the settings and in the dialog
	title      string
	minWidth   int // a narrower column is left out
	maxWidth   int // for the longest content
	alignRight bool
	isDefault  bool // shown unless the user has chosen columns
	sort       sorting
	cell       func(m *model, r *row) (text, colour string)
	hasValue   func(m *model) bool // whether a listed session has a value for it; nil if all have
}

// unsorted is the sort of columns whose title does not sort the list when it is clicked.
const unsorted sorting = -1

// columns are all columns, in the order in which they are shown.
var columns = []column{
	{
		name: "id", title: "ID", minWidth: 10, maxWidth: 32, isDefault: true, sort: byID,
		cell: plainCell(func(r *row) string { return r.Id }),
	},
	{
		name: "agent", title: "AGENT", minWidth: 5, maxWidth: 12, isDefault: true, sort: byAgent,
		cell: plainCell(func(r *row) string { return wording.Program(r.Session) }),
	},
	{
		name: "state", title: "STATE", minWidth: 9, maxWidth: 9, isDefault: true, sort: byAttention,
		cell: func(_ *model, r *row) (string, string) { return r.State, wording.StateColour(r.Session) },
	},
	{
		name: "activity", title: "ACTIVITY", minWidth: 26, maxWidth: 64, isDefault: true, sort: byAttention,
		cell: (*model).activity,
	},
	{
		name: "waiting", title: "WAITING", minWidth: 7, maxWidth: 7, sort: byAttention,
		cell: func(m *model, r *row) (string, string) {
			if !waitsForPerson(r) {
				return "-", ""
			}
			return wording.Age(r.AttentionTimestamp, m.now), ""
		},
		hasValue: anyRow(func(r *row) bool { return waitsForPerson(r) && r.AttentionTimestamp != 0 }),
	},
	{
		name: "cpu", title: "CPU", minWidth: 6, maxWidth: 6, alignRight: true, isDefault: true, sort: byCPU,
		cell:     plainCell(func(r *row) string { return percent(r.usage.cpu, r.usage.exists) }),
		hasValue: anyCounter(processorTime),
	},
	{
		name: "graph", title: "", minWidth: 6, maxWidth: 20, alignRight: true, isDefault: true, sort: byCPU,
		cell:     func(_ *model, r *row) (string, string) { return r.usage.sparkline(sparkWidth), cyan },
		hasValue: anyCounter(processorTime),
	},
	{
		name: "memory", title: "MEMORY", minWidth: 7, maxWidth: 7, alignRight: true, isDefault: true, sort: byMemory,
		cell:     plainCell(func(r *row) string { return amount(r.usage.memory, r.usage.exists, wording.Size) }),
		hasValue: anyCounter(func(c *counters) uint64 { return c.memory }),
	},
	{
		name: "tasks", title: "TASKS", minWidth: 5, maxWidth: 5, alignRight: true, isDefault: true, sort: unsorted,
		cell: plainCell(func(r *row) string {
			return amount(r.usage.tasks, r.usage.exists, func(n uint64) string { return fmt.Sprint(n) })
		}),
		hasValue: anyCounter(func(c *counters) uint64 { return c.tasks }),
	},
	{
		name: "since", title: "SINCE", minWidth: 7, maxWidth: 7, isDefault: true, sort: byChange,
		cell: func(m *model, r *row) (string, string) { return wording.Since(r.Session, m.now), "" },
	},
	{
		name: "total", title: "TOTAL TIME", minWidth: 10, maxWidth: 10, sort: unsorted,
		cell: func(m *model, r *row) (string, string) {
			return wording.Runtime(r.earlierRuntime + lastRun(r.Session, m.now)), ""
		},
	},
	{
		name: "login", title: "LOGIN", minWidth: 6, maxWidth: 6, sort: unsorted,
		cell:     plainCell(atLogin),
		hasValue: anyRow(func(r *row) bool { return atLogin(r) != "-" }),
	},
	{
		name: "branch", title: "BRANCH", minWidth: 10, maxWidth: 32, sort: unsorted,
		cell:     plainCell(func(r *row) string { return cmp.Or(r.Worktree, "-") }),
		hasValue: anyRow(func(r *row) bool { return r.Worktree != "" }),
	},
	{
		name: "labels", title: "LABELS", minWidth: 10, maxWidth: 32, sort: unsorted,
		cell:     plainCell(labelText),
		hasValue: anyRow(func(r *row) bool { return len(r.Labels) > 0 }),
	},
	{
		name: "description", title: "DESCRIPTION", minWidth: 12, maxWidth: 48, sort: unsorted,
		cell:     plainCell(func(r *row) string { return cmp.Or(r.Description, "-") }),
		hasValue: anyRow(func(r *row) bool { return r.Description != "" }),
	},
	{
		name: "workspace", title: "WORKSPACE", minWidth: 12, maxWidth: 48, isDefault: true, sort: unsorted,
		cell: plainCell(func(r *row) string { return wording.Location(r.Session, wording.AbbreviateHome) }),
	},
}

// plainCell returns a function for cells in the default colour.
func plainCell(text func(*row) string) func(*model, *row) (string, string) {
	return func(_ *model, r *row) (string, string) { return text(r), "" }
}

// dropOrder lists the columns in the order in which they are left out on a narrow terminal. The ID
// is never left out.
var dropOrder = []string{
	"workspace", "tasks", "graph", "description", "labels", "branch", "login", "total", "waiting", "memory",
	"cpu", "agent", "since", "activity", "state",
}

// growOrder lists the columns that grow into free space, in the order in which they do.
var growOrder = []string{"id", "agent", "activity", "branch", "labels", "description", "workspace", "graph"}

// columnIndex returns the index in columns of the column of this name, -1 if there is none.
func columnIndex(name string) int {
	return slices.IndexFunc(columns, func(c column) bool { return c.name == name })
}

// isShown reports whether the column is among the chosen ones. The id always is, because rows
// cannot be distinguished without it.
func (s settings) isShown(c column) bool {
	if len(s.Columns) == 0 || c.name == "id" {
		return c.isDefault
	}
	return slices.Contains(s.Columns, c.name)
}

// anyRow returns a function that reports whether a listed session has a value.
func anyRow(has func(*row) bool) func(*model) bool {
	return func(m *model) bool { return slices.ContainsFunc(m.order, has) }
}

func processorTime(v *counters) uint64 { return v.cpuTime }

// anyCounter returns a function that reports whether a counter is available on this system. As long
// as no counters of a running session were read, it is assumed to be available.
func anyCounter(counter func(*counters) uint64) func(*model) bool {
	return func(m *model) bool {
		live, known := false, false
		for _, r := range m.order {
			if r.usage.exists && wording.IsAvailable(counter(&r.usage.counters)) {
				return true
			}
			live = live || !wording.IsEnded(r.State)
			known = known || r.usage.exists
		}
		return live && !known
	}
}

// lastRun returns the duration of the session's last run in microseconds, up to now if it has not
// ended.
func lastRun(s client.Session, now time.Time) uint64 {
	end := s.ExecMainExitTimestamp
	if s.AgentAlive {
		end = uint64(now.UnixMicro())
	}
	return end - min(s.ExecMainStartTimestamp, end)
}

// addRuntime updates the total duration of the runs before the last one from a new snapshot. The
// total is read together with the session; signals do not report that it has grown.
func (r *row) addRuntime(s client.Session, now time.Time) {
	switch {
	case r.Id == "" && wording.IsAvailable(s.TotalRuntimeUSec):
		r.earlierRuntime = s.TotalRuntimeUSec - min(lastRun(s, now), s.TotalRuntimeUSec)
	case r.Id != "" && s.ExecMainStartTimestamp != r.ExecMainStartTimestamp:
		r.earlierRuntime += lastRun(r.Session, now)
	}
}

// atLogin returns what happens to the session at login, "-" for nothing.
func atLogin(r *row) string {
	if r.OnLogin == "" || r.OnLogin == word.Ignore {
		return "-"
	}
	return r.OnLogin
}

// labelText returns the labels in the form in which they are typed, "-" if there are none.
func labelText(r *row) string {
	return cmp.Or(strings.Join(wording.Labels(r.Labels), " "), "-")
}

// activity returns the cell of the activity column: what the agent is doing, what it asks, or how
// it has ended.
func (m *model) activity(r *row) (text, colour string) {
	switch {
	case r.Frozen:
		return "frozen", ""
	case wording.IsEnded(r.State) && r.State != word.Failed && r.usage.leftovers > 0:
		return wording.Leftovers(r.usage.leftovers), wording.Yellow
	}
	s := r.Session
	s.AttentionMessage = firstLine(r.question)
	return wording.Detail(s)
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

// percent formats processor usage as top(1) does: 100% is one processor.
func percent(part float64, exists bool) string {
	switch {
	case !exists || part < 0:
		return "-"
	case part >= 9.995:
		return fmt.Sprintf("%.0f%%", math.Round(part*100))
	}
	return fmt.Sprintf("%.1f%%", part*100)
}

// amount formats a counter, "-" if it is unknown.
func amount(n uint64, exists bool, text func(uint64) string) string {
	if !exists || !wording.IsAvailable(n) {
		return "-"
	}
	return text(n)
}
