package config

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hostileNames are names of no agent, which a user, a client or the name of a file may contain.
var hostileNames = []string{
	"", "@", "@work", "claude@", "claude@@", "claude@work@home", "claude@../x", "claude@/etc", "claude@$(id)",
	"claude@`id`", "claude@;id", "claude@%h", "claude@%%", "claude@ work", "claude@work ", "claude@Work", "claude@-x",
	"claude@.x", "claude@x.", "claude@wörk", "claude@a\nb", "claude@a\x00", "claude@a:b", `claude@a\x2fb`, "../claude@work",
	"Claude@work", "-@work", "claude@" + strings.Repeat("x", 65),
}

func TestValidAgentName(t *testing.T) {
	for _, name := range []string{"claude", "claude@work", "a@b", "my-agent_2.x@my-account_2.x", "claude@0"} {
		assert.True(t, ValidAgentName(name), name)
		assert.False(t, IsTemplate(name), name)
		assert.Equal(t, !strings.Contains(name, "@"), ValidName(name), "an id never contains an account")
	}
	for _, name := range hostileNames {
		assert.False(t, ValidAgentName(name), "%q", name)
	}
	assert.True(t, IsTemplate("claude@"))
	for _, name := range []string{"", "@", "claude", "-@", "claude@@"} {
		assert.False(t, IsTemplate(name), "%q", name)
	}
}

// TestLoadAgents_Templates: the files of an agent, its template and an instance apply in this
// order, each followed by its drop-ins.
func TestLoadAgents_Templates(t *testing.T) {
	root := write(t, map[string]string{
		"agents/claude.agent": "[Agent]\nCommand=claude\nDescription=base\n" +
			"[Environment]\nSet=A=1 B=1 C=1 D=1 E=1 F=1\n",
		"agents/claude.agent.d/x.conf": "[Environment]\nSet=B=2 C=2 D=2 E=2 F=2\n",
		"agents/claude@.agent": "[Environment]\n" +
			"Set=C=%I D=%I E=%I F=%I\nEnvironmentFile=-%E/accounts/%I.env\n",
		"agents/claude@.agent.d/x.conf":        "[Environment]\nSet=D=4 E=4 F=4\n",
		"agents/claude@work.agent":             "[Agent]\nDescription=work\n[Environment]\nSet=E=5 F=5\n",
		"agents/claude@work.agent.d/x.conf":    "[Environment]\nSet=F=6\n",
		"agents/claude@private.agent.d/x.conf": "[Environment]\nSet=F=7\n",
		"agents/alone@.agent":                  "[Agent]\nCommand=alone %I\n",
		"agents/only@this.agent":               "[Agent]\nCommand=only %I\n",
	})
	agents, warnings := LoadAgents([]string{root})
	require.Empty(t, lines(warnings))
	for name, want := range map[string]string{
		"claude":         "base [A=1 B=2 C=2 D=2 E=2 F=2]",
		"claude@other":   "base [A=1 B=2 C=%I D=4 E=4 F=4]",
		"claude@private": "base [A=1 B=2 C=%I D=4 E=4 F=7]",
		"claude@work":    "work [A=1 B=2 C=%I D=4 E=5 F=6]",
		"alone@x":        " []", "only@this": " []",
	} {
		agent, ok := agents.Find(name)
		require.True(t, ok, name)
		assert.Equal(t, name, agent.Name)
		assert.Equal(t, want, fmt.Sprintf("%s %s", agent.Description, agent.Environment), name)
	}
	for _, name := range append([]string{"alone", "only", "only@that", "command@x", "nonesuch@x"}, hostileNames...) {
		_, ok := agents.Find(name)
		assert.False(t, ok, "%q", name)
	}
	assert.True(t, agents["claude"].HasTemplate)
	assert.False(t, agents["command"].HasTemplate)
	assert.Equal(t, filepath.Join(root, "agents/claude@work.agent"), agents["claude@work"].Source)
	assert.Len(t, agents["claude@work"].DropIns, 3)

	files, err := AgentFiles([]string{root}, "claude@work")
	require.NoError(t, err)
	var names []string
	for _, file := range files {
		names = append(names, strings.TrimPrefix(file, root+"/agents/"))
	}
	assert.Equal(t, []string{
		"claude.agent", "claude.agent.d/x.conf", "claude@.agent", "claude@.agent.d/x.conf", "claude@work.agent",
		"claude@work.agent.d/x.conf",
	}, names)
	for name, n := range map[string]int{
		"claude": 2, "claude@": 4, "claude@other": 4, "claude@private": 5, "alone@": 1, "alone": 0, "only@that": 0,
		"command@x": 0, "nonesuch@x": 0,
	} {
		files, err := AgentFiles([]string{root}, name)
		require.NoError(t, err)
		assert.Len(t, files, n, name)
	}
}

// TestLoadAgents_HiddenTemplates: a file that is masked hides what it would define, and nothing
// else is used in its place.
func TestLoadAgents_HiddenTemplates(t *testing.T) {
	vendor := write(t, map[string]string{
		"agents/a.agent": "[Agent]\nCommand=a\n", "agents/a@.agent": "[Environment]\nSet=X=%I\n",
		"agents/b.agent": "[Agent]\nCommand=b\n", "agents/b@.agent": "[Environment]\nSet=X=%I\n",
		"agents/c.agent": "[Agent]\nCommand=c\n", "agents/c@.agent": "[Environment]\nSet=X=%I\n",
	})
	admin := write(t, map[string]string{
		"agents/a.agent": "null", "agents/a@own.agent": "[Environment]\nSet=Y=1\n",
		"agents/b@.agent": "null", "agents/b@own.agent": "[Environment]\nSet=Y=1\n",
		"agents/b@d.agent.d/x.conf": "[Environment]\nSet=Y=1\n",
		"agents/c@gone.agent":       "null",
		"agents/c@large.agent":      strings.Repeat("#", maxFileSize+1),
	})
	agents, warnings := LoadAgents([]string{admin, vendor})
	for name, want := range map[string]bool{
		"a": false, "a@x": false, "a@own": false,
		"b": true, "b@x": false, "b@d": false, "b@own": true,
		"c": true, "c@x": true, "c@gone": false, "c@large": false,
	} {
		_, ok := agents.Find(name)
		assert.Equal(t, want, ok, name)
	}
	text := strings.ReplaceAll(strings.ReplaceAll(lines(warnings), admin, ""), vendor, "")
	assert.Equal(t, "/agents/c@large.agent: cannot read configuration: /agents/c@large.agent is larger than "+
		"1048576 bytes, expected a smaller file\n", text)
}

// TestLoadAgents_WarnsOnceAboutTemplates: the files of an agent are applied to its template and its
// instances, too, but each mistake in them is reported once, with file and line.
func TestLoadAgents_WarnsOnceAboutTemplates(t *testing.T) {
	root := write(t, map[string]string{
		"agents/a.agent": "[Agent]\nCommand=a\nCommnad=b\nType=forking\n[Environment]\nSet=X=%I\n",
		"agents/a@.agent": "[Agent]\nIdSource=create\n" +
			"[Environment]\nEnvironmentFile=-%E/%I.env\nEnvironmentFile=%I\nSet=1X=%I\n",
		"agents/a@work.agent":           "[Environment]\nEnvironmentFile=$(touch pwned)\nSet=Y=%q\nCreateDirectory=x\n",
		"agents/a@$(touch pwned).agent": "[Agent]\nCommand=touch pwned\n",
		"agents/a@%h.agent":             "[Agent]\nCommand=touch pwned\n",
		"agents/a@x@y.agent":            "[Agent]\nCommand=touch pwned\n",
		"agents/@x.agent":               "[Agent]\nCommand=touch pwned\n",
		"agents/none@.agent":            "[Environment]\nSet=X=%I\n",
		"agents/a@Q.agent.d/x.conf":     "[Environment]\nSet=X=%I\n",
	})
	agents, warnings := LoadAgents([]string{root})
	assert.Equal(t, strings.Join([]string{
		`/agents/@x.agent: invalid agent name "@x", ignored`,
		`/agents/a.agent:3: unknown key Commnad= in section [Agent], ignored`,
		`/agents/a.agent:4: Type=: invalid value "forking": expected simple or notify, ignored`,
		`/agents/a.agent:6: Set=: %I has a value only in the files of a template, such as a@.agent, ignored`,
		`/agents/a@.agent:5: EnvironmentFile=: invalid path "%I": expected an absolute path, ignored`,
		`/agents/a@.agent:6: Set=: invalid entry "1X=%I": expected NAME=VALUE, ignored`,
		`/agents/a@.agent:2: IdSource=create requires IdCommand=`,
		`/agents/a@.agent:2: IdSource=create has no effect: Command= has no %U`,
		`/agents/a@$(touch pwned).agent: invalid agent name "a@$(touch pwned)", ignored`,
		`/agents/a@%h.agent: invalid agent name "a@%h", ignored`,
		`/agents/a@work.agent:2: EnvironmentFile=: invalid path "$(touch pwned)": expected an absolute path, ignored`,
		`/agents/a@work.agent:3: Set=: unknown specifier "%q", ignored`,
		`/agents/a@work.agent:4: CreateDirectory=: invalid path "x": expected an absolute path, ignored`,
		`/agents/a@x@y.agent: invalid agent name "a@x@y", ignored`,
		`/agents/none@.agent: agent has no Command=, ignored`,
		`/agents/a@Q.agent.d: drop-ins for agent "a@Q" without a file, ignored`,
	}, "\n")+"\n", strings.ReplaceAll(lines(warnings), root, ""))
	assert.Equal(t, []string{"X=%I"}, agents["a@work"].Environment, "what %I is used for in the agent's own file")
	assert.Empty(t, agents["a"].Environment)
}

// TestKnown: instances are known by their own files, and by their environment files.
func TestKnown(t *testing.T) {
	root := write(t, map[string]string{
		"agents/a.agent":              "[Agent]\nCommand=a\n",
		"agents/a@.agent":             "[Environment]\nEnvironmentFile=-%E/accounts/%I.env\nEnvironmentFile=-%h/%I/x\n",
		"agents/a@file.agent":         "[Agent]\nDescription=x\n",
		"agents/a@drop.agent.d/x":     "",
		"agents/a@gone.agent":         "null",
		"accounts/work.env":           "A=1\n",
		"accounts/gone.env":           "A=1\n",
		"accounts/.env":               "",
		"accounts/$(touch pwned).env": "",
		"accounts/%h.env":             "",
		"accounts/Upper.env":          "",
		"accounts/notes.txt":          "",
		"accounts/old.env.bak":        "",
	})
	agents, warnings := LoadAgents([]string{root})
	require.Empty(t, lines(warnings))
	assert.Equal(t, []string{"a", "a@drop", "a@file", "a@work", "command"},
		agents.Known(Specifiers{Home: "/nonexistent", ConfigHome: root}))
	assert.Equal(t, []string{"a", "a@drop", "a@file", "command"},
		agents.Known(Specifiers{ConfigHome: "/nonexistent"}))
	assert.NotContains(t, agents.Known(Specifiers{ConfigHome: root}), "a@gone")

	var files []string
	for _, file := range agents.AccountFiles(Specifiers{ConfigHome: root}) {
		assert.Equal(t, filepath.Join(root, "accounts", file.Account+".env"), file.Path)
		files = append(files, file.Account)
	}
	assert.Equal(t, []string{"$(touch pwned)", "%h", "", "Upper", "gone", "work"}, files)
}

func TestAgentText_ChecksTemplates(t *testing.T) {
	root := write(t, map[string]string{
		"agents/a.agent": "[Agent]\nCommand=a %U\nIdSource=preset\n", "agents/a@.agent": "[Agent]\nResumeCommand=a -r %U\n",
	})
	for _, row := range []struct {
		name, file, text string
		want             []string
	}{
		{"a@", "a@.agent", "[Environment]\nSet=X=%I\n", nil},
		{"a@", "a@.agent.d/override.conf", "[Environment]\nSet=X=%I\n", nil},
		{"a@work", "a@work.agent", "[Environment]\nSet=X=%I\n", nil},
		{"a@work", "a@work.agent.d/override.conf", "[Agent]\nIdSource=create\n", []string{
			":2: IdSource=create requires IdCommand=",
		}},
		{"b@", "b@.agent", "[Environment]\nSet=X=%I\n", []string{": agent has no Command="}},
		{"b@", "b@.agent", "[Agent]\nCommand=b %I\n", nil},
		{"a", "a.agent.d/override.conf", "[Environment]\n\nSet=X=%I\n", []string{
			":3: Set=: %I has a value only in the files of a template, such as a@.agent, ignored",
		}},
	} {
		path := filepath.Join(root, "agents", row.file)
		_, warnings := AgentText{
			Name: row.name, Path: path, DropIn: strings.HasSuffix(path, ".conf"), Text: []byte(row.text), Dirs: []string{root},
		}.Check()
		var got []string
		for _, w := range warnings {
			got = append(got, strings.TrimPrefix(w.String(), path))
		}
		assert.Equal(t, row.want, got, "%s: %s", row.file, row.text)
	}
}
