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
			byGroup = compareNatural(a.heading, b.heading)
			if m.sort == byAttention {
				byGroup = cmp.Or(cmp.Compare(groups[a.heading], groups[b.heading]), byGroup)
			}
		}
		return cmp.Or(byGroup, m.sort.compare(a, b), compareNatural(a.Id, b.Id))
	})
	m.layOutLines()
}

// compareNatural compares texts, with the numbers in them compared by value: proj5 precedes proj46.
func compareNatural(a, b string) int {
	same := 0
	for same < len(a) && same < len(b) && a[same] == b[same] {
		same++
	}
	for same > 0 && isDigit(a[same-1]) { // back to the start of the number in which they differ
		same--
	}
	one, other := a[same:], b[same:]
	left, right := digits(one), digits(other)
	if left == 0 || right == 0 {
		return strings.Compare(one, other)
	}
	x, y := strings.TrimLeft(one[:left], "0"), strings.TrimLeft(other[:right], "0")
	return cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(x, y), strings.Compare(one, other))
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// digits returns the number of digits that the text begins with.
func digits(text string) int {
	n := 0
	for n < len(text) && isDigit(text[n]) {
		n++
	}
	return n
}
