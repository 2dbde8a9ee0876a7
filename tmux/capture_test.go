package tmux

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed"
)

// TestCapture_ReturnsCompleteLastScreenOfExitedAgent: the result contains all of the agent's output
// and nothing else.
func TestCapture_ReturnsCompleteLastScreenOfExitedAgent(t *testing.T) {
	const end = `; printf '\033[1m[corral] sh exited with code 3.\033[0m Restart or log: corralctl attach shop'`
	screen := func(from, to int) string {
		var b strings.Builder
		for i := from; i <= to; i++ {
			fmt.Fprintln(&b, i)
		}
		return b.String()
	}
	for _, row := range []struct {
		name, script string
		older        bool // an older version of Corral has started the server
		want         string
	}{
		{"a line", "echo hello" + end, false, "hello\n"},
		{"a full screen, scrolled by the exit line", "seq 40 | head -c -1; echo" + end, false, screen(1, 40)},
		{"a full screen", "seq 39" + end, false, screen(1, 39)},
		{"blank lines", `printf 'hello\n\n\n\n'` + end, false, "hello\n"},
		{"no exit line because the shim was killed", "echo hello", false, "hello\n"},
		{"no output", "true" + end, false, ""},
		{"a line, older server", "echo hello", true, "hello\n"},
		{"a full screen, older server", "seq 40 | head -c -1", true, screen(1, 40)},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			x := prepare(t)
			s := serve(t, x)
			if row.older {
				ask(t, x, s, "set-option", "-gu", "remain-on-exit-format")
			}
			require.NoError(t, x.Run(t.Context(), s, "/", []string{"sh", "-c", "read -r go; clear;" + row.script}))
			require.NoError(t, x.SendKeys(t.Context(), s, []string{"Enter"}))
			awaitDead(t, x, s)
			assert.Empty(t, ask(t, x, s, "source-file", os.DevNull), "tmux reports no errors, such as that of a failed hook")
			for _, escapes := range []bool{false, true} {
				got, err := x.Capture(t.Context(), s, 0, escapes)
				require.NoError(t, err)
				assert.Equal(t, row.want, attributePattern.ReplaceAllString(got, ""))
			}
			got, err := x.Capture(t.Context(), s, 1, false)
			require.NoError(t, err)
			assert.Equal(t, row.want[strings.LastIndexByte("\n"+strings.TrimSuffix(row.want, "\n"), '\n'):], got)
		})
	}
}

// TestCapture_OmitsExitLineBeforeTmuxNoticesTheExit: it is enough that the daemon knows of the
// exit.
func TestCapture_OmitsExitLineBeforeTmuxNoticesTheExit(t *testing.T) {
	x := prepare(t)
	s := open(t, x, "echo hello; printf '[corral] sh exited with code 3.'; exec sleep infinity")
	shows(t, x, s, "[corral]") // while the agent runs, this is output
	s.AgentExited = true
	got, err := x.Capture(t.Context(), s, 0, false)
	require.NoError(t, err)
	assert.Equal(t, "hello\n", got)
}

// awaitDead waits until tmux has noticed that the program of the pane has exited.
func awaitDead(t *testing.T, x *Tmux, s Session) {
	t.Helper()
	testbed.Poll(t, "the pane is dead", func() bool {
		return ask(t, x, s, "display-message", "-p", "-t", s.pane(), "#{pane_dead}") == "1"
	})
}
