package wording

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/corrald/corral/dbusapi/client"
)

func TestCompareNatural_OrdersNumbersByValue(t *testing.T) {
	sorted := []string{"", "1", "2", "10", "a", "a-1", "a1b", "a2", "a02", "a10", "proj", "proj5", "proj46", "proj46-2",
		"proj46-10"}
	shuffled := slices.Clone(sorted)
	slices.Sort(shuffled)
	slices.Reverse(shuffled)
	slices.SortFunc(shuffled, CompareNatural)
	for i, a := range sorted {
		for j, b := range sorted {
			assert.Equal(t, CompareNatural(a, b), -CompareNatural(b, a), "%q, %q", a, b)
			assert.Equal(t, i == j, CompareNatural(a, b) == 0, "%q, %q", a, b)
		}
	}
	assert.Equal(t, []string{"proj", "proj5", "proj46", "proj46-2", "proj46-10"}, shuffled[len(shuffled)-5:])
	assert.Equal(t, []string{"", "1", "2", "10"}, shuffled[:4])
	for _, row := range [][2]string{
		{"proj5", "proj46"}, {"a2b3", "a2b10"}, {"a", "a1"}, {"a01", "a1"}, {"a1a", "a01b"}, {"9", "10"}, {"a9", "b1"},
	} {
		assert.Negative(t, CompareNatural(row[0], row[1]), "%v", row)
		assert.Positive(t, CompareNatural(row[1], row[0]), "%v", row)
	}
}

func TestProgram_NamesTheAgentOrTheCommand(t *testing.T) {
	assert.Equal(t, "vim", Program(client.Session{Agent: "command", Command: []string{"/usr/bin/vim", "a"}}))
	assert.Equal(t, "claude", Program(client.Session{Agent: "claude", Command: []string{"node"}}))
	assert.Equal(t, "command", Program(client.Session{Agent: "command"}), "an older daemon does not publish it")
}

func TestLocation_NamesRepositoryAndBranch(t *testing.T) {
	t.Setenv("HOME", "/home/alice")
	assert.Equal(t, "~/src/shop", Location(client.Session{WorkingDirectory: "/home/alice/src/shop"}, AbbreviateHome))
	assert.Equal(t, "~/src/shop (fix)",
		Location(client.Session{WorkingDirectory: "/home/alice/.local/w/fix", Worktree: "fix",
			Repository: "/home/alice/src/shop"}, AbbreviateHome))
	assert.Equal(t, "/w (branch fix)", Location(client.Session{WorkingDirectory: "/w", Worktree: "fix"}, AbbreviateHome),
		"an older daemon does not publish it")
}
