package main

import (
	"bufio"
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/cmd/corralctl/wording"
)

// TestDoctor_WrapsBetweenWords: on a terminal, a long finding or remedy is wrapped and indented; a
// program that reads the output gets one line.
func TestDoctor_WrapsBetweenWords(t *testing.T) {
	findings := []finding{
		{Check: "user bus", Level: levelOK, Text: "answers"},
		{Check: "controllers", Level: levelNote,
			Text:   "the memory, pids and cpu controllers are unavailable; those limits have no effect",
			Remedy: "boot with another kernel command line"},
	}
	for _, row := range []struct {
		name  string
		tty   *terminal
		plain bool
		want  string
	}{
		{"on a terminal", &terminal{width: 50}, false, `✓ user bus     answers
• controllers  the memory, pids and cpu
               controllers are unavailable; those
               limits have no effect
               -> boot with another kernel command
                  line
`},
		{"on a terminal with --plain", &terminal{width: 54}, true, `ok    user bus     answers
note  controllers  the memory, pids and cpu
                   controllers are unavailable; those
                   limits have no effect
                   -> boot with another kernel command
                      line
`},
		{"into a pipe", nil, false, `ok    user bus     answers
note  controllers  the memory, pids and cpu controllers are unavailable; those limits have no effect
                   -> boot with another kernel command line
`},
	} {
		t.Run(row.name, func(t *testing.T) {
			var out bytes.Buffer
			c := &ctl{out: bufio.NewWriter(&out), outTTY: row.tty}
			c.plain = row.plain
			c.printFindings(findings)
			require.NoError(t, c.out.Flush())
			assert.Equal(t, row.want+"\nNo problems found; 1 note.\n", out.String())
			for line := range strings.Lines(out.String()) {
				assert.True(t, row.tty == nil || wording.Width(strings.TrimSuffix(line, "\n")) <= row.tty.width, line)
			}
		})
	}
}
