package logtimes_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/corrald/corral/internal/logtimes"
)

func TestEntries_At(t *testing.T) {
	entries := logtimes.Parse([]byte("10 100\n20 200\n"), []byte("30 150\n"))
	for _, row := range []struct{ offset, time, until int64 }{
		{0, 0, 10}, {9, 0, 10}, {10, 100, 20}, {19, 100, 20}, {20, 200, 30}, {30, 150, -1}, {1000, 150, -1},
	} {
		time, until := entries.At(row.offset)
		assert.Equal(t, row.time, time, "the time at %d", row.offset)
		assert.Equal(t, row.until, until, "the end of the time at %d", row.offset)
	}
	time, until := logtimes.Entries(nil).At(5)
	assert.Zero(t, time)
	assert.EqualValues(t, -1, until)
}

func TestParse_ByContent(t *testing.T) {
	for name, row := range map[string]struct {
		older, newer string
		want         logtimes.Entries
	}{
		"nothing":                    {"", "", nil},
		"no file is rotated":         {"", "0 1\n", logtimes.Entries{{0, 1}}},
		"the clock was set back":     {"", "0 9\n5 8\n", logtimes.Entries{{0, 9}, {5, 8}}},
		"read twice during rotation": {"0 1\n5 2\n", "0 1\n5 2\n7 3\n", logtimes.Entries{{0, 1}, {5, 2}, {7, 3}}},
		"nothing was written":        {"", "0 1\n5 2\n5 3\n", logtimes.Entries{{0, 1}, {5, 3}}},
		"invalid lines":              {"x\n1\n1 -2\n-1 2\n1 2 3\n\n\x00\x00", "\n4 5\n", logtimes.Entries{{4, 5}}},
		"an incomplete line":         {"", "0 1\n5", logtimes.Entries{{0, 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, row.want, logtimes.Parse([]byte(row.older), []byte(row.newer)))
		})
	}
}

func TestEntry_IsParsed(t *testing.T) {
	entry := logtimes.Entry{Offset: 1<<63 - 1, Time: 1<<63 - 1}
	text := entry.Append(nil)
	assert.LessOrEqual(t, len(text), logtimes.MaxEntry)
	assert.Equal(t, logtimes.Entries{entry}, logtimes.Parse(text))
}

// FuzzParse checks that the entries are in the order of their offsets.
func FuzzParse(f *testing.F) {
	f.Add([]byte("0 1\n5 2\n"), []byte("7 3\n"))
	f.Add([]byte("0 1\n5"), []byte("3 3\n3 4\n"))
	f.Fuzz(func(t *testing.T, older, newer []byte) {
		last := int64(-1)
		for _, entry := range logtimes.Parse(older, newer) {
			assert.Greater(t, entry.Offset, last)
			last = entry.Offset
		}
	})
}
