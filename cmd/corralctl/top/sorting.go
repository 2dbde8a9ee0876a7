package top

import (
	"cmp"
	"slices"
	"strings"

	"github.com/corrald/corral/cmd/corralctl/wording"
)

// sorting is the key that rows are ordered by; rows that are equal in it are ordered by their ids.
type sorting int

const (
	byAttention sorting = iota
	byCPU
	byMemory
	byChange // of state, the latest first
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

// The levels of urgency that needsPerson distinguishes.
const (
	calm     = 5 // and above: the session needs nobody
	archived = 10
)

// urgency is 0 for the session that needs a person most. What a person has seen needs nobody, but
// for a question: its agent waits until it is answered.
func urgency(r *row) int {
	attention := r.Attention != "" && !seen(r)
	switch {
	case wording.IsWaiting(r.Session) && !seen(r):
		return 0
	case wording.IsWaiting(r.Session):
		return 1
	case r.State == "stale" || r.State == "orphaned":
		return 2
	case attention && r.State == "failed":
		return 3
	case attention:
		return 4
	}
	switch r.State {
	case "starting", "running", "stopping":
		return calm
	case "failed":
		return 6
	case "suspended":
		return 7
	case "created":
		return 8
	case "archived":
		return archived
	}
	return 9
}

// needsPerson reports whether a person has to do something about the session.
func needsPerson(r *row) bool { return urgency(r) < calm }

// compareNatural compares texts with the numbers in them by value: proj5 is before proj46.
func compareNatural(a, b string) int {
	same := 0
	for same < len(a) && same < len(b) && a[same] == b[same] {
		same++
	}
	for same > 0 && isDigit(a[same-1]) { // the number begins before the digit in which they differ
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

// digits is the number of digits that the text begins with.
func digits(text string) int {
	n := 0
	for n < len(text) && isDigit(text[n]) {
		n++
	}
	return n
}
