package wording

import (
	"cmp"
	"math"
	"path"
	"strings"
	"time"

	"github.com/corrald/corral/dbusapi/client"
)

// CompareNatural orders texts as people expect, with numbers in them by their value: proj5 comes
// before proj46.
func CompareNatural(a, b string) int {
	left, right := a, b
	for left != "" && right != "" {
		n, m := countLeadingDigits(left), countLeadingDigits(right)
		if n == 0 || m == 0 {
			if left[0] != right[0] {
				return cmp.Compare(left[0], right[0])
			}
			left, right = left[1:], right[1:]
			continue
		}
		x, y := strings.TrimLeft(left[:n], "0"), strings.TrimLeft(right[:m], "0")
		if c := cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(x, y)); c != 0 {
			return c
		}
		left, right = left[n:], right[m:]
	}
	return cmp.Or(cmp.Compare(len(left), len(right)), strings.Compare(a, b))
}

// countLeadingDigits returns the number of digits that s begins with.
func countLeadingDigits(s string) int { return len(s) - len(strings.TrimLeft(s, "0123456789")) }

// Program returns the name of what a session runs: its agent, or the program if it runs a plain
// command.
func Program(s client.Session) string {
	if s.Agent == "command" && len(s.Command) > 0 {
		return path.Base(s.Command[0])
	}
	return s.Agent
}

// Location returns where a session works, for people: its workspace, or, for a session with a
// worktree, the repository and the branch, which identify it better than the worktree's path. It
// formats directories with path, for example with AbbreviateHome.
func Location(s client.Session, path func(string) string) string {
	if s.Repository != "" && s.Worktree != "" {
		return path(s.Repository) + " (" + s.Worktree + ")"
	}
	return OnBranch(path(s.WorkingDirectory), s.Worktree)
}

// Runtime formats how long a session has run, in microseconds: "2h 5m". It returns "-" if the
// session has never run or the time is unknown.
func Runtime(usec uint64) string {
	if usec == 0 || !IsAvailable(usec) {
		return "-"
	}
	return Span(time.Duration(min(usec, math.MaxInt64/1000)) * time.Microsecond)
}
