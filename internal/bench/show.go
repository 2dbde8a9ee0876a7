package main

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// show prints the rows as a table with notes below it.
func show(to io.Writer, p place, rows []row) error {
	table := [][]string{{"WHAT", "UNIT", "N", "MEDIAN", "P99", "FLOOR", "FLOOR P99", "RATIO", "BAR", "MET"}}
	var notes []string
	for _, r := range rows {
		what := r.name
		for _, text := range r.notes {
			notes = append(notes, text)
			what += fmt.Sprintf(" [%d]", len(notes))
		}
		table = append(table, []string{
			what, r.unit, strconv.Itoa(len(r.values)), number(r.values.median()), number(r.values.p99()),
			number(r.floor.median()), number(r.floor.p99()), number(r.ratio()), r.bar.text, r.met(),
		})
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", circumstances(p))
	align(&b, table)
	b.WriteByte('\n')
	for i, text := range notes {
		fmt.Fprintf(&b, "[%d] %s\n", i+1, text)
	}
	_, err := io.WriteString(to, b.String())
	return err
}

// circumstances describes the machine: what the results depend on besides the programs.
func circumstances(p place) string {
	var u unix.Utsname
	_ = unix.Uname(&u)
	return fmt.Sprintf("%d processors, Linux %s, state on %s."+byTurns,
		runtime.NumCPU(), unix.ByteSliceToString(u.Release[:]), p.disk())
}

const byTurns = " Each number was taken by turns with its floor."

// met returns "yes" or "no" for a row that meets or misses its bar, "" for a row without a bar.
func (r *row) met() string {
	switch {
	case r.bar.met == nil || len(r.values) == 0:
		return ""
	case r.bar.met(*r):
		return "yes"
	}
	return "no"
}

// number formats a value with three significant digits; a value that is not a number becomes "".
func number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return ""
	case v == math.Trunc(v) && a < 1e6 || a >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 1:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'f', 3, 64)
}

// align formats the table: numbers, in columns 3 to 8, are aligned to the right, text to the left.
func align(b *strings.Builder, table [][]string) {
	widths := make([]int, len(table[0]))
	for _, line := range table {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, line := range table {
		var text strings.Builder
		for i, cell := range line {
			space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i >= 2 && i <= 7 {
				text.WriteString(space + cell + "  ")
			} else {
				text.WriteString(cell + space + "  ")
			}
		}
		b.WriteString(strings.TrimRight(text.String(), " ") + "\n")
	}
}
