package main

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi/client"
)

// listColumn is a column that list can show and sort by.
type listColumn struct {
	name     string // for --columns and --sort
	title    string
	minWidth int // that the column may be shortened to; 0 if it is never shortened
	cut      func(s string, width int) string
	text     func(v listView, s client.Session) string
	order    func(a, b client.Session) int // nil: natural order of the text
}

// listView has what the text of a cell depends on besides its session.
type listView struct {
	leftovers func(client.Session) int
	path      func(string) string // formats a directory
	branches  map[string]string   // in front of ids, for a tree
	full      bool
	now       time.Time
}

// The columns that list shows by default and with --full.
var (
	defaultColumns = []string{"id", "agent", "state", "activity", "since", "workspace"}
	fullColumns    = []string{"id", "agent", "state", "activity", "since", "total", "workspace", "description"}
)

// listColumns are all columns, in the order of help and error messages.
var listColumns = []listColumn{
	{name: "id", title: "ID", minWidth: 16, cut: wording.Ellipsize,
		text: func(v listView, s client.Session) string { return v.branches[s.Id] + s.Id }},
	{name: "agent", title: "AGENT", minWidth: 6, cut: wording.Ellipsize,
		text: func(_ listView, s client.Session) string { return wording.Program(s) }},
	{name: "state", title: "STATE", minWidth: 9, cut: wording.Ellipsize,
		text: func(v listView, s client.Session) string { return wording.State(s, v.leftovers) }},
	{name: "activity", title: "ACTIVITY", minWidth: 9, cut: wording.EllipsizeDetail,
		text: func(v listView, s client.Session) string {
			detail, _ := wording.Detail(s)
			if v.full {
				return detail
			}
			return wording.EllipsizeDetail(detail, maxQuestionWidth)
		}},
	{
		name: "since", title: "SINCE", text: func(v listView, s client.Session) string { return wording.Since(s, v.now) },
		order: func(a, b client.Session) int { return cmp.Compare(wording.SinceUSec(b), wording.SinceUSec(a)) },
	},
	{
		name: "total", title: "TOTAL TIME",
		text: func(_ listView, s client.Session) string { return wording.Runtime(s.TotalRuntimeUSec) },
		order: func(a, b client.Session) int {
			return cmp.Compare(knownOr0(a.TotalRuntimeUSec), knownOr0(b.TotalRuntimeUSec))
		},
	},
	{name: "workspace", title: "WORKSPACE", minWidth: 9, cut: wording.EllipsizePath,
		text: func(v listView, s client.Session) string { return wording.Location(s, v.path) }},
	{name: "description", title: "DESCRIPTION", minWidth: 11, cut: wording.Ellipsize,
		text: func(_ listView, s client.Session) string { return s.Description }},
	{name: "parent", title: "PARENT", minWidth: 9, cut: wording.Ellipsize,
		text: func(_ listView, s client.Session) string { return s.Parent }},
	{name: "labels", title: "LABELS", minWidth: 9, cut: wording.Ellipsize,
		text: func(_ listView, s client.Session) string { return labelText(s.Labels) }},
	{name: "branch", title: "BRANCH", minWidth: 9, cut: wording.Ellipsize,
		text: func(_ listView, s client.Session) string { return s.Worktree }},
	{name: "directory", title: "DIRECTORY", minWidth: 9, cut: wording.EllipsizePath,
		text: func(v listView, s client.Session) string { return v.path(s.WorkingDirectory) }},
	{name: "login", title: "AT LOGIN", text: func(_ listView, s client.Session) string { return s.OnLogin }},
	{name: "unit", title: "UNIT", minWidth: 9, cut: wording.Ellipsize,
		text: func(_ listView, s client.Session) string { return s.Unit }},
}

func knownOr0(n uint64) uint64 {
	if !wording.IsAvailable(n) {
		return 0
	}
	return n
}

// labelText formats labels in the order of their keys: "team=web,urgent=yes".
func labelText(labels map[string]string) string { return strings.Join(wording.Labels(labels), ",") }

func columnNames() []string {
	names := make([]string, len(listColumns))
	for i, column := range listColumns {
		names[i] = column.name
	}
	return names
}

// columnOf returns the column with a name that was given to an option.
func columnOf(name, option string) (listColumn, error) {
	if i := slices.IndexFunc(listColumns,
		func(column listColumn) bool { return column.name == strings.ToLower(name) }); i >= 0 {
		return listColumns[i], nil
	}
	return listColumn{}, unknownWordError("column", name, columnNames(), "list", option)
}

// selectedColumns returns the columns that list shows.
func (l *listOptions) selectedColumns(full bool) ([]listColumn, error) {
	names := l.columns
	switch {
	case len(names) > 0:
	case full:
		names = fullColumns
	default:
		names = defaultColumns
	}
	columns := make([]listColumn, len(names))
	for i, name := range names {
		var err error
		if columns[i], err = columnOf(name, "--columns"); err != nil {
			return nil, err
		}
	}
	return columns, nil
}

// compare returns the order of --sort: by its columns, reversed for those with a minus, and then by
// id.
func (l *listOptions) compare(v listView) (func(a, b client.Session) int, error) {
	var orders []func(a, b client.Session) int
	for _, word := range l.sort {
		name, reversed := strings.CutPrefix(word, "-")
		column, err := columnOf(name, "--sort")
		if err != nil {
			return nil, err
		}
		order := column.order
		if order == nil {
			order = func(a, b client.Session) int { return wording.CompareNatural(column.text(v, a), column.text(v, b)) }
		}
		if reversed {
			orders = append(orders, func(a, b client.Session) int { return order(b, a) })
		} else {
			orders = append(orders, order)
		}
	}
	return func(a, b client.Session) int {
		for _, order := range orders {
			if c := order(a, b); c != 0 {
				return c
			}
		}
		return wording.CompareNatural(a.Id, b.Id)
	}, nil
}

// hasLabels returns whether a session has all requested labels, each KEY or KEY=VALUE.
func (l *listOptions) hasLabels(s client.Session) bool {
	return !slices.ContainsFunc(l.labels, func(label string) bool {
		key, value, valued := strings.Cut(label, "=")
		has, is := s.Labels[key]
		return !is || valued && has != value
	})
}
