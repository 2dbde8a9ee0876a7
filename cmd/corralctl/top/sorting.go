package top

import (
	"cmp"
	"slices"
	"strings"

	"github.com/corrald/corral/cmd/corralctl/wording"
)

// sorting is an order of the list. Rows that compare equal are ordered by their ids.
type sorting int

const (
	byAttention sorting = iota
	byCPU
	byMemory
	byChange // by the last change of state, the latest first
	byAgent
	byID
)

var sortings = []string{"attention", "cpu", "memory", "change", "agent", "id"}

func (s sorting) String() string { return sortings[s] }

func (s sorting) next() sorting { return (s + 1) % sorting(len(sortings)) }

func (s sorting) byUsage() bool { return s == byCPU || s == byMemory }

func parseSorting(name string) (sorting, bool) {
	i := slices.Index(sortings, name)
	return sorting(max(0, i)), i >= 0
}

func (s sorting) compare(a, b *row) int {
	switch s {
	case byAttention:
		return cmp.Compare(urgency(a), urgency(b))
	case byCPU:
		return cmp.Compare(b.usage.cpu, a.usage.cpu)
	case byMemory:
		return cmp.Compare(b.usage.memoryOr(0), a.usage.memoryOr(0))
	case byChange:
		return cmp.Compare(b.StateChangeTimestamp, a.StateChangeTimestamp)
	case byAgent:
		return strings.Compare(wording.Program(a.Session), wording.Program(b.Session))
	}
	return 0
}

// sortRows sorts the listed rows, by their groups first, and lays out the lines of the list.
func (m *model) sortRows() {
	groups := map[string]int{} // by heading: urgency of the most urgent session
	if m.settings.Group != "" {
		for _, r := range m.order {
			r.heading = m.groupOf(r)
			if u, known := groups[r.heading]; !known || urgency(r) < u {
				groups[r.heading] = urgency(r)
			}
		}
	}
	slices.SortFunc(m.order, func(a, b *row) int {
		byGroup := 0
		if len(groups) > 0 {
			byGroup = wording.CompareNatural(a.heading, b.heading)
			if m.sort == byAttention {
				byGroup = cmp.Or(cmp.Compare(groups[a.heading], groups[b.heading]), byGroup)
			}
		}
		return cmp.Or(byGroup, m.sort.compare(a, b), wording.CompareNatural(a.Id, b.Id))
	})
	m.layOutLines()
}
