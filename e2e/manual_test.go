//go:build e2e || limits

package e2e

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// example is one of the manual's: files that a person writes, and commands that are then typed, in
// the order in which they are there.
type example struct {
	steps []step
}

// step is a file, with its path in the home, or commands.
type step struct{ file, text string }

var examplePath = regexp.MustCompile(`\*~/([^*]+)\*`)

// exampleOf reads a section of the examples of corral@.service(5): what it shows is what is tried.
// A block belongs to the first path that was named since the block before; commands have none.
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
	e.steps = e.steps[:len(e.steps)-1] // what is said at the end
	require.NotEmpty(t, e.steps)
	return e
}

// script is the whole example for a shell, in the home.
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
