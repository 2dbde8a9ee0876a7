package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDetachKey(t *testing.T) {
	for _, row := range []struct{ value, key, problem string }{
		{"C-q", "C-q", ""},
		{"C-Q", "C-Q", ""},
		{`C-\`, `C-\`, ""},
		{"C-]", "C-]", ""},
		{"C-Space", "C-Space", ""},
		{"M-d", "M-d", ""},
		{"M-;", "M-;", ""},
		{"M-Enter", "M-Enter", ""},
		{"C-M-q", "C-M-q", ""},
		{"F12", "F12", ""},
		{"S-F1", "S-F1", ""},
		{"C-S-Up", "C-S-Up", ""},
		{"none", "", ""},
		{"q", "", `invalid key "q": expected a name of tmux(1) such as C-q, M-d or F12, or none`},
		{"Ctrl-q", "", "invalid key"},
		{"F13", "", "invalid key"},
		{"Enter", "", "invalid key"},
		{"C-{", "", "invalid key"},
		{"C-q d", "", "invalid key"},
		{"C-qq", "", "invalid key"},
		{"C-m", "", `invalid key "C-m": programs need it (Enter)`},
		{"C-C", "", `invalid key "C-C": programs need it (interrupt)`},
		{"M-\n", "", "invalid key"},
		{"#{pid}", "", "invalid key"},
	} {
		key, err := detachKey(row.value)
		if row.problem == "" {
			require.NoError(t, err, row.value)
			assert.Equal(t, row.key, key)
			continue
		}
		require.ErrorContains(t, err, row.problem, row.value)
	}
}

// TestLoad_ReportsAnInvalidDetachKey expects a warning with file and line, and the default. An
// empty value disables the key.
func TestLoad_ReportsAnInvalidDetachKey(t *testing.T) {
	root := write(t, map[string]string{"corral.conf": "[Corral]\nDetachKey=Ctrl-q\n"})
	c, warnings, err := Load([]string{root})
	require.NoError(t, err)
	require.Len(t, warnings, 1)
	assert.Equal(t, root+"/corral.conf:2: DetachKey=: "+
		`invalid key "Ctrl-q": expected a name of tmux(1) such as C-q, M-d or F12, or none, ignored`, warnings[0].String())
	assert.Equal(t, "C-q", c.DetachKey)

	c, warnings, err = Load([]string{write(t, map[string]string{"corral.conf": "[Corral]\nDetachKey=\n"})})
	require.NoError(t, err)
	assert.Empty(t, warnings)
	assert.Empty(t, c.DetachKey)
}
