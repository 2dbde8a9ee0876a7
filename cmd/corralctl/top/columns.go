package top

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi/client"
)

// column is one of the table's.
type column struct {
	name  string // in the settings and in the dialog
	title string
	least int  // columns of the terminal below which it is of no use
	most  int  // columns of the terminal that it may grow to if its content asks for it
	right bool // aligned to the right, as numbers are
	usual bool // shown unless other columns were chosen
	sort  sorting
	cell  func(m *model, r *row) (text, colour string)
	has   func(m *model) bool // whether any listed session has a value for it; nil: each has
}

// unsorted is the order of columns whose title does not sort when it is clicked.
const unsorted sorting = -1

// columns are all that there are, in the order in which they are shown.
var columns = []column{
	{"id", "ID", 10, 32, false, true, byID, func(_ *model, r *row) (string, string) { return r.Id, "" }, nil},
	{"agent", "AGENT", 5, 12, false, true, byAgent, func(_ *model, r *row) (string, string) { return wording.Program(r.Session), "" }, nil},
	{"state", "STATE", 9, 9, false, true, byAttention, func(_ *model, r *row) (string, string) { return r.State, wording.StateColour(r.Session) }, nil},
	{"activity", "ACTIVITY", 26, 64, false, true, byAttention, (*model).activity, nil},
	{"waiting", "WAITING", 7, 7, false, false, byAttention, func(m *model, r *row) (string, string) {
		if !waitsForPerson(r) {
			return "-", ""
		}
		return wording.Age(r.AttentionTimestamp, m.now), ""
	}, anyRow(func(r *row) bool { return waitsForPerson(r) && r.AttentionTimestamp != 0 })},
	{"cpu", "CPU", 6, 6, true, true, byCPU, func(_ *model, r *row) (string, string) { return percent(r.usage.cpu, r.usage.there), "" }, anyCounter(processorTime)},
	{"graph", "", 6, 20, true, true, byCPU, func(_ *model, r *row) (string, string) { return r.usage.sparkline(sparkWidth), cyan }, anyCounter(processorTime)},
	{"memory", "MEMORY", 7, 7, true, true, byMemory, func(_ *model, r *row) (string, string) {
		return amount(r.usage.memory, r.usage.there, wording.Size), ""
	}, anyCounter(func(v *values) uint64 { return v.memory })},
	{"tasks", "TASKS", 5, 5, true, true, unsorted, func(_ *model, r *row) (string, string) {
		return amount(r.usage.tasks, r.usage.there, func(n uint64) string { return fmt.Sprint(n) }), ""
	}, anyCounter(func(v *values) uint64 { return v.tasks })},
	{"since", "SINCE", 7, 7, false, true, byChange, func(m *model, r *row) (string, string) { return wording.Since(r.Session, m.now), "" }, nil},
	{"total", "TOTAL TIME", 10, 10, false, false, unsorted, func(m *model, r *row) (string, string) {
		return wording.Runtime(r.earlier + lastRun(r.Session, m.now)), ""
	}, nil},
	{"login", "LOGIN", 6, 6, false, false, unsorted, func(_ *model, r *row) (string, string) { return atLogin(r), "" }, anyRow(func(r *row) bool { return atLogin(r) != "-" })},
	{"branch", "BRANCH", 10, 32, false, false, unsorted, func(_ *model, r *row) (string, string) { return cmp.Or(r.Worktree, "-"), "" }, anyRow(func(r *row) bool { return r.Worktree != "" })},
	{"labels", "LABELS", 10, 32, false, false, unsorted, func(_ *model, r *row) (string, string) { return labelText(r), "" }, anyRow(func(r *row) bool { return len(r.Labels) > 0 })},
	{"description", "DESCRIPTION", 12, 48, false, false, unsorted, func(_ *model, r *row) (string, string) { return cmp.Or(r.Description, "-"), "" }, anyRow(func(r *row) bool { return r.Description != "" })},
	{"workspace", "WORKSPACE", 12, 48, false, true, unsorted, func(_ *model, r *row) (string, string) {
		return wording.Location(r.Session, wording.AbbreviateHome), ""
	}, nil},
}

// dropped are the columns in the order in which they give way on a narrow terminal; ID stays to the
// last.
var dropped = []string{
	"workspace", "tasks", "graph", "description", "labels", "branch", "login", "total", "waiting", "memory", "cpu", "agent", "since", "activity", "state",
}

// growing are those that get the room that is left, in that order.
var growing = []string{"id", "agent", "activity", "branch", "labels", "description", "workspace", "graph"}

func columnNamed(name string) *column {
	if i := slices.IndexFunc(columns, func(c column) bool { return c.name == name }); i >= 0 {
		return &columns[i]
	}
	return nil
}

// isShown reports whether the column was chosen. The id always is: without it no row can be
// snapshot from another.
func (s settings) isShown(c column) bool {
	if len(s.Columns) == 0 || c.name == "id" {
		return c.usual
	}
	return slices.Contains(s.Columns, c.name)
}

func anyRow(has func(*row) bool) func(*model) bool {
	return func(m *model) bool { return slices.ContainsFunc(m.order, has) }
}

func processorTime(v *values) uint64 { return v.cpuTime }

// anyCounter reports whether the system gives a counter. Until the counters of one live session
// were read, it is expected to.
func anyCounter(counter func(*values) uint64) func(*model) bool {
	return func(m *model) bool {
		live, known := false, false
		for _, r := range m.order {
			if r.usage.there && wording.IsAvailable(counter(&r.usage.values)) {
				return true
			}
			live = live || !wording.IsEnded(r.State)
			known = known || r.usage.there
		}
		return live && !known
	}
}

// lastRun returns how many microseconds the session's last run took, until now if it has not ended.
func lastRun(s client.Session, now time.Time) uint64 {
	end := s.ExecMainExitTimestamp
	if s.AgentAlive {
		end = uint64(now.UnixMicro())
	}
	return end - min(s.ExecMainStartTimestamp, end)
}

// count notes what the runs before the last one took: the sum is read with the session, and no
// signal says that it has grown.
func (r *row) count(s client.Session, now time.Time) {
	switch {
	case r.Id == "" && wording.IsAvailable(s.TotalRuntimeUSec):
		r.earlier = s.TotalRuntimeUSec - min(lastRun(s, now), s.TotalRuntimeUSec)
	case r.Id != "" && s.ExecMainStartTimestamp != r.ExecMainStartTimestamp:
		r.earlier += lastRun(r.Session, now)
	}
}

func atLogin(r *row) string {
	if r.OnLogin == "" || r.OnLogin == "ignore" {
		return "-"
	}
	return r.OnLogin
}

// labelText is the labels as they are typed.
func labelText(r *row) string {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(r.Labels)) {
		words = append(words, key+"="+r.Labels[key])
	}
	return cmp.Or(strings.Join(words, " "), "-")
}

// activity says what the agent does, what it asks, or how it ended.
func (m *model) activity(r *row) (text, colour string) {
	switch {
	case r.Frozen:
		return "frozen", ""
	case wording.IsEnded(r.State) && r.State != "failed" && r.usage.left > 0:
		return leftovers(r.usage.left), wording.Yellow
	}
	s := r.Session
	s.AttentionMessage = firstLine(r.question)
	return wording.Detail(s)
}

func leftovers(n int) string {
	if n == 1 {
		return "1 process left"
	}
	return wording.Plural(n, "processe") + " left"
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

// percent is a part of a processor's time, as top(1) has it: 100% is one processor.
func percent(part float64, there bool) string {
	switch {
	case !there || part < 0:
		return "-"
	case part >= 9.995:
		return fmt.Sprintf("%.0f%%", math.Round(part*100))
	}
	return fmt.Sprintf("%.1f%%", part*100)
}

func amount(n uint64, there bool, text func(uint64) string) string {
	if !there || !wording.IsAvailable(n) {
		return "-"
	}
	return text(n)
}
