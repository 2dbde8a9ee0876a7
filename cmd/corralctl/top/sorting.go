package top

import (
	"cmp"
	"slices"
	"strings"

	"github.com/corrald/corral/cmd/corralctl/wording"
)

// sorting is what the rows are ordered by; those that are equal in it, by their ids.
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
		return strings.Compare(a.Agent, b.Agent)
	}
	return 0
}

// urgency is 0 for what needs a person most. Something that was acknowledged needs nobody, except
// for an agent that can do nothing without an answer.
func urgency(r *row) int {
	switch {
	case wording.Waits(r.Session):
		return 0
	case r.State == "stale" || r.State == "orphaned":
		return 1
	case r.Attention != "" && r.State == "failed":
		return 2
	case r.Attention != "" && !r.AttentionAcknowledged:
		return 3
	}
	switch r.State {
	case "starting", "running", "stopping":
		return 4
	case "failed":
		return 5
	case "suspended":
		return 6
	case "created":
		return 7
	case "archived":
		return 9
	}
	return 8
}
