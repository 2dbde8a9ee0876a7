package environments_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/environment"
	"github.com/corrald/corral/supervisor/environments"
)

func TestNewSources_ExpandsTheDefinition(t *testing.T) {
	sources, unexpanded := environments.NewSources(config.Agent{
		DefaultEnvironment: []string{"D=%h/d"},
		Environment:        []string{"A=%h/a", "B=%U", "C=50%%"},
		EnvironmentFiles:   []string{"-%h/keys", "%t/file"},
		UnsetEnvironment:   []string{"LANG"},
	}, true, config.Specifiers{Home: "/home/ann"}, []string{"CALLER=%h"}, []string{"OWN=%h"})
	assert.Equal(t, environments.Sources{
		LoginShell: true,
		Default:    []string{"D=/home/ann/d"},
		Definition: []string{"A=/home/ann/a", "C=50%"},
		Files:      []environment.SourceFile{{Path: "/home/ann/keys", Optional: true}},
		Unset:      []string{"LANG"},
		Caller:     []string{"CALLER=%h"},
		Session:    []string{"OWN=%h"},
	}, sources)
	var names []string
	for _, u := range unexpanded {
		require.ErrorContains(t, u.Err, "cannot expand", u.Name)
		names = append(names, u.Name)
	}
	assert.Equal(t, []string{"B", "%t/file"}, names)
}

// TestNewSources_Account: the files of an account are private, those of all accounts need not be.
func TestNewSources_Account(t *testing.T) {
	sources, unexpanded := environments.NewSources(config.Agent{
		Name:             "claude@work",
		Environment:      []string{"DIR=%h/.claude-%I"},
		EnvironmentFiles: []string{"%h/all", "-%E/corral/accounts/%I.env"},
		Directories:      []string{"%h/.claude-%I"},
	}, false, config.Specifiers{Home: "/home/ann", ConfigHome: "/home/ann/.config", Instance: "work"}, nil, nil)
	assert.Empty(t, unexpanded)
	assert.Equal(t, environments.Sources{
		Account:    true,
		Definition: []string{"DIR=/home/ann/.claude-work"},
		Files: []environment.SourceFile{
			{Path: "/home/ann/all"},
			{Path: "/home/ann/.config/corral/accounts/work.env", Optional: true, Private: true},
		},
		Directories: []string{"/home/ann/.claude-work"},
	}, sources)
}

func TestNewSources_TheDefinitionDecidesAboutTheLoginShell(t *testing.T) {
	yes, no := true, false
	for _, row := range []struct {
		what       string
		definition *bool
		configured bool
		want       bool
	}{
		{"configured", nil, true, true},
		{"disabled", nil, false, false},
		{"disabled, enabled for the agent", &yes, false, true},
		{"configured, disabled for the agent", &no, true, false},
	} {
		sources, _ := environments.NewSources(
			config.Agent{LoginShell: row.definition}, row.configured, config.Specifiers{}, nil, nil)
		assert.Equal(t, row.want, sources.LoginShell, row.what)
	}
}

func TestIsPathKnown(t *testing.T) {
	for _, row := range []struct {
		what string
		def  config.Agent
		want bool
	}{
		{"no entries", config.Agent{}, true},
		{"PATH is expanded", config.Agent{Environment: []string{"PATH=%h/bin"}}, true},
		{"PATH depends on the session", config.Agent{Environment: []string{"PATH=%w/bin"}}, false},
		{"another variable depends on the session", config.Agent{Environment: []string{"PATHS=%w"}}, true},
		{"a file depends on the session", config.Agent{EnvironmentFiles: []string{"-%w/.env"}}, false},
		{"a file is expanded", config.Agent{EnvironmentFiles: []string{"%h/.env"}}, true},
	} {
		_, unexpanded := environments.NewSources(row.def, false, config.Specifiers{Home: "/home/ann"}, nil, nil)
		assert.Equal(t, row.want, environments.IsPathKnown(unexpanded), row.what)
	}
}

func TestCallerAfterStart(t *testing.T) {
	caller := []string{"CONFIG_DIR=/c", "TOKEN=secret", "DATA=/d"}
	for _, row := range []struct {
		what       string
		conditions []string
		want       []string
	}{
		{"no condition", nil, nil},
		{"none of its variables", []string{"%h/.agent/%U"}, nil},
		{"in two conditions", []string{"${CONFIG_DIR:-%h/.config}/%U", "$DATA/%U"}, []string{"CONFIG_DIR=/c", "DATA=/d"}},
	} {
		got := environments.CallerAfterStart(caller, config.Agent{ResumeCondition: row.conditions})
		assert.Equal(t, row.want, got, row.what)
	}
}
