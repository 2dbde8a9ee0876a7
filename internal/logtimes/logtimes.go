// Package logtimes records when output was logged, in a small file beside the log. The shim writes
// it, and readers of the log learn from it when a line was printed.
//
// The file has a line "OFFSET SECONDS" for each time, in seconds since 1970: what the log contains
// from that offset was printed then or later. Offsets count all bytes ever written to the log, as
// those of package termsizes do. The file is rotated together with the log.
package logtimes

import (
	"bytes"
	"sort"
	"strconv"
)

// Names of the files in the directory of the log: FileName for its newer file, OlderFileName for
// the rotated one.
const (
	FileName      = "output.times"
	OlderFileName = FileName + ".1"
)

// MaxEntry is the maximum size of an entry in a file, in bytes.
const MaxEntry = 2*20 + 2

// MaxSize returns to which size, in bytes, the file may grow beside a log of logSize bytes. Beyond
// that, times are recorded less often.
func MaxSize(logSize int64) int64 { return 64<<10 + logSize/16 }

// Entry states that the log's output from Offset was printed at Time or later.
type Entry struct{ Offset, Time int64 }

// Append appends the entry, as it is in a file, to text and returns the result.
func (e Entry) Append(text []byte) []byte {
	text = append(strconv.AppendInt(text, e.Offset, 10), ' ')
	return append(strconv.AppendInt(text, e.Time, 10), '\n')
}

// Entries are in the order of their offsets.
type Entries []Entry

// Parse decodes the content of the files, older first. It ignores invalid lines.
func Parse(files ...[]byte) Entries {
	var all Entries
	for line := range bytes.Lines(bytes.Join(files, nil)) {
		offset, time, _ := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(" "))
		at, err1 := strconv.ParseUint(string(offset), 10, 63)
		seconds, err2 := strconv.ParseUint(string(time), 10, 63)
		if err1 != nil || err2 != nil {
			continue
		}
		// Nothing was written at entries of this or a higher offset.
		all = all[:all.before(int64(at))]
		all = append(all, Entry{int64(at), int64(seconds)})
	}
	return all
}

// before returns how many entries have an offset below at.
func (all Entries) before(at int64) int {
	if n := len(all); n == 0 || all[n-1].Offset < at {
		return n
	}
	return sort.Search(len(all), func(i int) bool { return all[i].Offset >= at })
}

// At returns the time recorded for the output at an offset, 0 if it is unknown, and up to which
// offset it is valid, -1 for the end of the log.
func (all Entries) At(offset int64) (time, until int64) {
	i := sort.Search(len(all), func(i int) bool { return all[i].Offset > offset })
	until = -1
	if i < len(all) {
		until = all[i].Offset
	}
	if i > 0 {
		time = all[i-1].Time
	}
	return time, until
}
