package environments_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/environment"
	"github.com/corrald/corral/supervisor/environments"
)

// TestOrigins_NameWhatEarlierRunsHad writes the records of runs that follow each other.
func TestOrigins_NameWhatEarlierRunsHad(t *testing.T) {
	dir := t.TempDir()
	const manager, caller = environment.Manager, environment.Caller
	for _, row := range []struct {
		what      string
		variables []environment.Variable
		want      environments.Origins
	}{
		{"the first run", []environment.Variable{
			variable("PATH", "/bin", caller), variable("KEY", "secret", caller), variable("LANG", "C", manager),
		}, environments.Origins{
			Path: "/bin", Variables: map[string][]string{manager: {"LANG"}, caller: {"KEY", "PATH"}},
		}},
		{"two variables are missing", []environment.Variable{variable("LANG", "C", manager)}, environments.Origins{
			Variables: map[string][]string{manager: {"LANG"}}, Missing: map[string][]string{caller: {"KEY", "PATH"}},
		}},
		{"one is still missing, one comes from another source", []environment.Variable{variable("PATH", "/x", manager)},
			environments.Origins{
				Path: "/x", Variables: map[string][]string{manager: {"PATH"}},
				Missing: map[string][]string{manager: {"LANG"}, caller: {"KEY"}},
			}},
		{"all are there again", []environment.Variable{
			variable("KEY", "1", caller), variable("LANG", "1", caller),
		}, environments.Origins{
			Variables: map[string][]string{caller: {"KEY", "LANG"}}, Missing: map[string][]string{manager: {"PATH"}},
		}},
	} {
		row.want.Run = row.what
		require.NoError(t, environments.WriteOrigins(dir, row.what, row.variables))
		got, err := environments.ReadOrigins(dir)
		require.NoError(t, err)
		assert.Equal(t, row.want, got)
	}
	text, err := os.ReadFile(filepath.Join(dir, "environment"))
	require.NoError(t, err)
	assert.NotContains(t, string(text), "secret")
}

func TestOrigins_LimitTheMissingNames(t *testing.T) {
	dir := t.TempDir()
	var many []environment.Variable
	for i := range 2000 {
		many = append(many, environment.Variable{Name: fmt.Sprint("V", i), Source: environment.Caller})
	}
	require.NoError(t, environments.WriteOrigins(dir, "many", many))
	require.NoError(t, environments.WriteOrigins(dir, "none", nil))
	got, err := environments.ReadOrigins(dir)
	require.NoError(t, err)
	assert.Len(t, got.Missing[environment.Caller], 1000)
}

func TestReadOrigins_OfWhatIsNoRecord(t *testing.T) {
	for _, row := range []struct {
		what   string
		create func(path string) error
		fails  bool
	}{
		{"nothing", func(string) error { return nil }, false},
		{"a damaged record", func(path string) error {
			return os.WriteFile(path, []byte(`{"run":"one","path":7}`), 0o600)
		}, false},
		{"a FIFO", func(path string) error { return unix.Mkfifo(path, 0o600) }, true},
	} {
		dir := t.TempDir()
		require.NoError(t, row.create(filepath.Join(dir, "environment")), row.what)
		got, err := environments.ReadOrigins(dir)
		assert.Equal(t, row.fails, err != nil, row.what)
		assert.Equal(t, environments.Origins{}, got, row.what)
		require.NoError(t, environments.WriteOrigins(dir, "two", nil), row.what)
		got, err = environments.ReadOrigins(dir)
		require.NoError(t, err, row.what)
		assert.Equal(t, "two", got.Run, row.what)
	}
}
