package tmux

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed"
)

func TestReconfigure_AppliesAllValidLines(t *testing.T) {
	for _, row := range []struct {
		name, text string
		options    map[string]string // user options that are set afterwards
		invalid    []string          // without the path
	}{
		{"a valid file", "set -g @a 1\nif-shell true 'set -g @b 2'\n", map[string]string{"@a": "1", "@b": "2"}, nil},
		{"an unknown command", "set -g @a 1\nbadcommand x\nset -g @b 2\n", map[string]string{"@a": "1", "@b": "2"},
			[]string{":2: unknown command: badcommand"}},
		{"an unknown option", "set -g @a 1\nset -g no-such on\nset -g @b 2\n", map[string]string{"@a": "1", "@b": "2"},
			[]string{":2: invalid option: no-such"}},
		{
			"several, of both kinds", "badcommand x\nset -g @a 1\nset -g no-such on\nworse\nset -g status maybe\nset -g @b 2\n",
			map[string]string{"@a": "1", "@b": "2"},
			[]string{":1: unknown command: badcommand", ":3: invalid option: no-such", ":4: unknown command: worse",
				":5: unknown value: maybe"},
		},
		{
			"a line that is continued", "set -g @a 1\nbadcommand \\\n  x \\\n  y\nset -g @b '2 \\\n3'\n",
			map[string]string{"@a": "1", "@b": "2 3"},
			[]string{": unknown command: badcommand"},
		},
		{"a block", "bind-key x {\n  badcommand\n  display-message y\n}\nset -g @a 1\n", map[string]string{"@a": "1"},
			[]string{": unknown command: badcommand"}},
		{"a block that is not closed", "set -g @a 1\nbind-key x {\n  display-message y\nset -g @b 2\n",
			map[string]string{"@a": "1", "@b": "2"}, []string{":2: syntax error: not closed before the end of the file"}},
		{"a condition that is not closed", "set -g @a 1\n%if 1\nset -g @b 2\n", map[string]string{"@a": "1", "@b": "2"},
			[]string{":2: syntax error: not closed before the end of the file"}},
		{"a brace too many", "set -g @a 1\n}\nset -g @b 2\n", map[string]string{"@a": "1", "@b": "2"},
			[]string{":2: syntax error"}},
		{"conditions and formats",
			"%if 1\nset -g @a 1\n%else\nset -g @a 2\n%endif\nbadcommand\nset -gF @b '#{current_file}'\n",
			map[string]string{"@a": "1", "@b": "FILE"}, []string{":6: unknown command: badcommand"}},
		{"no newline at the end", "badcommand\nset -g @a 1", map[string]string{"@a": "1"},
			[]string{":1: unknown command: badcommand"}},
		{"an empty file", "", nil, nil},
		{"a command that fails", "run-shell 'exit 3'\nset -g @a 1\n", map[string]string{"@a": "1"}, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			x := prepare(t)
			file := filepath.Join(testbed.Dir(t), "tmux.conf")
			require.NoError(t, os.WriteFile(file+".dotfiles", []byte(row.text), 0o600))
			require.NoError(t, os.Symlink(file+".dotfiles", file))
			s := serve(t, x, file)
			var invalid []string
			for _, i := range x.Reconfigure(t.Context(), s) {
				line := strings.TrimPrefix(i.String(), file)
				if strings.Contains(row.name, "continued") || row.name == "a block" {
					require.Positive(t, i.Line)
					// tmux reports the first or the last line of a command, depending on its version
					line = line[strings.IndexByte(line, ' ')-1:]
				}
				invalid = append(invalid, line)
			}
			assert.Equal(t, row.invalid, invalid)
			for option, want := range row.options {
				assert.Equal(t, strings.ReplaceAll(want, "FILE", file), ask(t, x, s, "show-options", "-gv", option), option)
			}
			require.NoError(t, x.Run(t.Context(), s, "/", []string{"sleep", "infinity"}))
			assert.Equal(t, "on", ask(t, x, s, "show-options", "-gAv", "-t", s.pane(), "remain-on-exit"))
			assert.Equal(t, "0", ask(t, x, s, "display-message", "-p", "-t", s.pane(), "#{pane_in_mode}"),
				"tmux does not show the errors in the pane")
		})
	}
}

// TestReconfigure_ReportsFileThatTakesTooLongToRepair: a line that tmux has not parsed is not
// reported as invalid.
func TestReconfigure_ReportsFileThatTakesTooLongToRepair(t *testing.T) {
	x := prepare(t)
	file := filepath.Join(testbed.Dir(t), "tmux.conf")
	require.NoError(t, os.WriteFile(file, []byte("set -g @a 1\nbind-key x {\nset -g @b 2\n"), 0o600))
	s := serve(t, x, file)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	text, bad := x.repair(ctx, s, file)
	assert.Empty(t, text)
	assert.Equal(t, []InvalidLine{{File: file, Text: "ignored as a whole: its invalid lines were not found within 5s"}},
		bad)
	assert.Zero(t, x.findUnclosed(ctx, s, []string{"bind-key x {", "set -g @b 2"}))
}

// TestReconfigure_ReportsThatAFileIsIgnored: with so many invalid lines, the valid ones do not
// apply either.
func TestReconfigure_ReportsThatAFileIsIgnored(t *testing.T) {
	x := prepare(t)
	file := filepath.Join(testbed.Dir(t), "tmux.conf")
	require.NoError(t, os.WriteFile(file, []byte("set -g @a 1\n"+strings.Repeat("worse\n", maxInvalid)), 0o600))
	s := serve(t, x, file)
	invalid := x.Reconfigure(t.Context(), s)
	require.Len(t, invalid, maxInvalid)
	assert.Equal(t, []InvalidLine{
		{File: file, Text: "ignored as a whole: it has 50 invalid lines or more"}, {file, 2, "unknown command: worse"},
	}, invalid[:2])
	assert.Empty(t, ask(t, x, s, "show-options", "-gqv", "@a"))
}

func TestReconfigure_ReportsInvalidLinesOfIncludedFiles(t *testing.T) {
	x := prepare(t)
	dir := testbed.Dir(t)
	main, included := filepath.Join(dir, "main.conf"), filepath.Join(dir, "included.conf")
	require.NoError(t, os.WriteFile(included, []byte("set -g @a 1\nworse\nset -g @b 2\nset -g no-such on\n"), 0o600))
	for _, text := range []string{
		"source-file " + included + "\nsource-file /nowhere/x.conf\nset -g @c 3\n",
		"badcommand\nsource-file " + included + "\nset -g @c 3\n",
		"badcommand\nsource-file -F '#{d:current_file}/included.conf'\nset -g @c 3\n",
	} {
		require.NoError(t, os.WriteFile(main, []byte(text), 0o600))
		s := serve(t, x, main)
		invalid := x.Reconfigure(t.Context(), s)
		require.Len(t, invalid, 3)
		assert.Equal(t, []InvalidLine{{included, 2, "unknown command: worse"}, {included, 4, "invalid option: no-such"}},
			invalid[:2])
		if strings.HasPrefix(text, "badcommand") {
			assert.Equal(t, InvalidLine{main, 1, "unknown command: badcommand"}, invalid[2])
		} else {
			assert.Regexp(t, `main\.conf:2: .*No such file or directory`, invalid[2].String())
		}
		for option, want := range map[string]string{"@a": "1", "@b": "2", "@c": "3"} {
			assert.Equal(t, want, ask(t, x, s, "show-options", "-gv", option), option)
		}
	}
}

func TestReconfigure_ReportsFileThatTmuxIsStillReading(t *testing.T) {
	x := prepare(t)
	file := filepath.Join(testbed.Dir(t), "tmux.conf")
	require.NoError(t, os.WriteFile(file, []byte("run-shell 'sleep infinity'\n"), 0o600))
	s := serve(t, x, file)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	invalid := x.Reconfigure(ctx, s)
	require.Len(t, invalid, 1)
	assert.Equal(t, "TmuxConfig=: tmux has not finished reading it within 10s", invalid[0].String())
}

// FuzzParseInvalid checks that error messages of tmux are split at file and line number, and that
// no text is lost.
func FuzzParseInvalid(f *testing.F) {
	f.Add("/home/u/.tmux.conf:3: unknown command: x\n/nowhere: No such file\n-:1: syntax error\n")
	f.Fuzz(func(t *testing.T, out string) {
		for _, i := range parseInvalid(out) {
			require.True(t, i.File == "-" || strings.HasPrefix(i.File, "/"))
			require.GreaterOrEqual(t, i.Line, 0)
			require.Contains(t, out, i.File)
			require.Contains(t, out, i.Text)
		}
	})
}
