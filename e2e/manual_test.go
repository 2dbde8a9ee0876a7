//go:build e2e || limits

package e2e

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// example is an example from the manual: files to write and commands to type, in the order of the
// manual.
type example struct {
	steps []step
}

// step is a file, with its path in the home directory, or, without a path, commands.
type step struct{ file, text string }

var examplePath = regexp.MustCompile(`\*~/([^*]+)\*`)

// exampleOf reads an example from corral@.service(5), so that the tests run exactly what the manual
// shows. A code block belongs to the first path mentioned since the previous block; without one it
// contains commands.
func exampleOf(t *testing.T, title string) example {
	t.Helper()
	page, err := os.ReadFile("../docs/man/corral@.service.5.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(page), "\n## "+title+"\n")
	require.True(t, found, "the manual has no example %q", title)
	section, _, _ = strings.Cut(section, "\n#")
	var e example
	for i, part := range strings.Split(section, "```\n") {
		if i%2 == 1 {
			e.steps[len(e.steps)-1].text = part
			continue
		}
		file := ""
		if path := examplePath.FindStringSubmatch(part); path != nil {
			file = path[1]
		}
		e.steps = append(e.steps, step{file: file})
	}
	e.steps = e.steps[:len(e.steps)-1] // the text after the last block
	require.NotEmpty(t, e.steps)
	return e
}

// script returns the whole example as a shell script to be run in the home directory.
func (e example) script() string {
	var all strings.Builder
	all.WriteString("set -e\n")
	for _, s := range e.steps {
		if s.file == "" {
			all.WriteString(s.text)
			continue
		}
		all.WriteString("mkdir -p \"$(dirname ~/'" + s.file + "')\"\ncat >~/'" + s.file + "' <<'END'\n" + s.text + "END\n")
	}
	return all.String()
}
