package environment

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCompose_LaterSourcesOverrideEarlierOnes adds one source after the other.
func TestCompose_LaterSourcesOverrideEarlierOnes(t *testing.T) {
	s := Sources{}
	for _, place := range []struct {
		source string
		list   *[]string
	}{
		{Manager, &s.Manager}, {LoginShell, &s.LoginShell}, {Corral, &s.Corral}, {Definition, &s.Definition},
		{File, &s.Files},
		{Caller, &s.Caller}, {Session, &s.Session},
	} {
		*place.list = []string{
			"X=" + place.source, "OF_" + strings.ToUpper(strings.ReplaceAll(place.source, "-", "_")) + "=1",
		}
		found := map[string]Variable{}
		for _, v := range s.Compose() {
			_, twice := found[v.Name]
			require.False(t, twice, "%s is there twice", v.Name)
			found[v.Name] = v
		}
		assert.Equal(t, Variable{"X", place.source, place.source}, found["X"])
	}
	assert.Len(t, s.Compose(), 8)
}

func TestCompose_Inheritance(t *testing.T) {
	for _, row := range []struct {
		what string
		have Sources
		want []string
	}{
		{"excluded variables are not inherited from any source", Sources{
			Manager: []string{"TMUX=1", "NOTIFY_SOCKET=1", "A=1"}, LoginShell: []string{"SHLVL=2", "CLAUDECODE=1", "B=1"},
			Caller: []string{"TERM_PROGRAM=x", "_=x", "C=1"},
		}, []string{"A=1", "B=1", "C=1"}},
		{"excluded variables can be set explicitly",
			Sources{Definition: []string{"TMUX=1"}, Files: []string{"KITTY_ID=1"}, Session: []string{"PWD=/x", "CORRAL_X=1"}},
			[]string{"TMUX=1", "KITTY_ID=1", "PWD=/x", "CORRAL_X=1"}},
		{"Unset= applies to all inherited variables", Sources{
			Unset: []string{"A", "B", "C", "D", "E"}, Manager: []string{"A=1"}, LoginShell: []string{"B=1"},
			Caller: []string{"C=1"}, Definition: []string{"D=1"}, Session: []string{"E=1"},
		}, []string{"D=1", "E=1"}},
		{"Default= applies to variables that are not set otherwise", Sources{
			Manager: []string{"A=1"}, LoginShell: []string{"B=1"}, Definition: []string{"C=1"}, Caller: []string{"D=1"},
			Default: []string{"A=0", "B=0", "C=0", "D=0", "E=0"}, Session: []string{"F=1"},
		}, []string{"A=1", "B=1", "C=1", "D=1", "E=0", "F=1"}},
		{"HOME and the like come from the manager", Sources{
			Manager: []string{"HOME=/home/ann"}, LoginShell: []string{"HOME=/x"},
			Caller: []string{"HOME=/root", "XDG_RUNTIME_DIR=/x"},
		}, []string{"HOME=/home/ann"}},
		{"a caller with the manager's PATH does not override the login shell", Sources{
			Manager: []string{"PATH=/bin"}, LoginShell: []string{"PATH=/nvm:/bin"}, Caller: []string{"PATH=/bin"},
		}, []string{"PATH=/nvm:/bin"}},
		{"a caller with its own PATH overrides the login shell", Sources{
			Manager: []string{"PATH=/bin"}, LoginShell: []string{"PATH=/nvm:/bin"}, Caller: []string{"PATH=/mine:/bin"},
		}, []string{"PATH=/mine:/bin"}},
		{"a caller in a session does not override a definition", Sources{
			Definition: []string{"HISTORY=/new"}, Caller: []string{"CORRAL_SESSION=old", "HISTORY=/old", "KEY=1"},
		}, []string{"HISTORY=/new", "KEY=1"}},
		{"any other caller overrides a definition", Sources{Definition: []string{"X=1"}, Caller: []string{"X=2"}},
			[]string{"X=2"}},
		{"exported functions are not inherited",
			Sources{LoginShell: []string{"BASH_FUNC_x%%=() {}", "a-b=1", "ok=1"}}, []string{"ok=1"}},
		{"corrald's SSH_AUTH_SOCK replaces that of a login", Sources{
			Manager: []string{"SSH_AUTH_SOCK=/a"}, Corral: []string{"SSH_AUTH_SOCK=/link"}, Caller: []string{"SSH_AUTH_SOCK=/b"},
		}, []string{"SSH_AUTH_SOCK=/link"}},
		{"Unset= removes SSH_AUTH_SOCK",
			Sources{Corral: []string{"SSH_AUTH_SOCK=/link"}, Unset: []string{"SSH_AUTH_SOCK"}}, []string{}},
		{"the session may set SSH_AUTH_SOCK", Sources{
			Corral: []string{"SSH_AUTH_SOCK=/link"}, Session: []string{"SSH_AUTH_SOCK=/mine"},
		}, []string{"SSH_AUTH_SOCK=/mine"}},
	} {
		t.Run(row.what, func(t *testing.T) { assert.Equal(t, row.want, Entries(row.have.Compose())) })
	}
}

func TestCallerHasPath(t *testing.T) {
	manager := []string{"PATH=/bin"}
	assert.True(t, Sources{Manager: manager, Caller: []string{"PATH=/nvm:/bin"}}.CallerHasPath())
	assert.False(t, Sources{Manager: manager, Caller: []string{"PATH=/bin"}}.CallerHasPath())
	assert.False(t, Sources{Manager: manager}.CallerHasPath())
}

func TestCallerVariables(t *testing.T) {
	want := []string{"KEY=1", "PATH=/x", "CORRAL_SESSION=s", "SSH_AUTH_SOCK=/a", "EMPTY="}
	assert.Equal(t, want, CallerVariables([]string{
		"KEY=1", "PATH=/x", "CORRAL_SESSION=s", "CORRAL_SHIM=/x", "SSH_AUTH_SOCK=/a", "HOME=/x", "TMUX_PANE=%1", "EMPTY=",
		"BASH_FUNC_x%%=()", "=C:", "noise", "a.b=1",
	}))
	assert.NotNil(t, CallerVariables(nil), "an empty list is not nil")
}

func TestAdded(t *testing.T) {
	assert.Equal(t, []string{"B=2", "C=1"}, Added([]string{"A=1", "B=1", "GONE=1"}, []string{"A=1", "B=2", "C=1"}))
}

// TestManual_ListsVariablesThatAreNotInherited compares the list in corral.agent(5) with the table
// in the code.
func TestManual_ListsVariablesThatAreNotInherited(t *testing.T) {
	text, err := os.ReadFile("../../docs/man/corral.agent.5.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(text), "# ENVIRONMENT\n")
	section, _, _ = strings.Cut(section, "\n# ")
	words := strings.FieldsFunc(strings.NewReplacer(`\_`, "_", `\*`, "*").Replace(section), func(r rune) bool {
		return strings.ContainsRune(" ,.;:()\n", r)
	})
	for _, pattern := range ExcludedPatterns() {
		assert.Contains(t, words, pattern)
	}
}
