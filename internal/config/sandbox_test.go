package config

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLoadSandboxes(t *testing.T) {
	vendor := write(t, map[string]string{
		"sandboxes/workspace.sandbox": "[Sandbox]\nDescription=a workspace\nHide=%h/.ssh %h/.*_history\nHide=%w/.env\n" +
			"Unset=AWS_* TOKEN\nPrivate=%h/.cache/\nReadOnly=%h/.x/config\n",
		"sandboxes/closed.sandbox": "[Sandbox]\nNetwork=none\n",
		"sandboxes/podman.sandbox": "[Sandbox]\nWrapper=podman run -v %w:%w 'an image'\nUnset=A\n",
		"sandboxes/masked.sandbox": "[Sandbox]\n",
		"sandboxes/notes.txt":      "no profile",
	})
	own := write(t, map[string]string{
		"sandboxes/workspace.sandbox.d/mine.conf": "[Sandbox]\nWritable=${DATA}/ %h/data\nHide=\nHide=%h/.gnupg\n",
		"sandboxes/masked.sandbox":                "null",
	})
	all, warnings := LoadSandboxes([]string{own, vendor})
	assert.Empty(t, warnings)
	source := func(name string) string { return filepath.Join(vendor, "sandboxes", name) }
	assert.Equal(t, Sandboxes{
		"workspace": {
			Name: "workspace", Description: "a workspace", Network: NetworkOpen, Hide: []string{"%h/.gnupg"},
			Unset: []string{"AWS_*", "TOKEN"}, Private: []string{"%h/.cache/"}, ReadOnly: []string{"%h/.x/config"},
			Writable: []string{"${DATA}/", "%h/data"}, Source: source("workspace.sandbox"),
			DropIns: []string{filepath.Join(own, "sandboxes/workspace.sandbox.d/mine.conf")},
		},
		"closed": {Name: "closed", Network: NetworkNone, Source: source("closed.sandbox")},
		"podman": {
			Name: "podman", Network: NetworkOpen, Wrapper: []string{"podman", "run", "-v", "%w:%w", "an image"},
			Unset: []string{"A"}, Source: source("podman.sandbox"),
		},
	}, all)
	assert.Equal(t, []string{"closed", "podman", "workspace"}, all.Names())
}

// TestLoadSandboxes_RejectsInvalidProfiles as a whole: a line that is ignored could be one that
// protects something.
func TestLoadSandboxes_RejectsInvalidProfiles(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"Network=lan", `Network=: invalid value "lan": expected open or none`},
		{"Hide=%z", `Hide=: unknown specifier "%z"`},
		{"Hide=documents", `Hide=: invalid path "documents": expected an absolute path`},
		{"Hide=/[", `Hide=: invalid file name pattern "/["`},
		{"ReadOnly=${x", `ReadOnly=: "${x" has ${ without a variable's name and }`},
		{"Writable='x", `Writable=: quote ' is not closed`},
		{"Unset=A=b", `Unset=: invalid pattern "A=b" for names of variables`},
		{"Wrapper=%z", `Wrapper=: unknown specifier "%z"`},
		{"Colour=red", `unknown key Colour= in section [Sandbox]`},
		{"Wrapper=podman\nHide=/x", `Hide= has no effect with Wrapper=`},
	} {
		t.Run(c.line, func(t *testing.T) {
			root := write(t, map[string]string{
				"sandboxes/a.sandbox":          "[Sandbox]\nDescription=a\n",
				"sandboxes/a.sandbox.d/x.conf": "[Sandbox]\n" + c.line + "\n",
			})
			all, warnings := LoadSandboxes([]string{root})
			assert.Empty(t, all)
			require.Len(t, warnings, 2)
			assert.Contains(t, warnings[0].Text, c.want)
			assert.Equal(t, filepath.Join(root, "sandboxes/a.sandbox.d/x.conf"), warnings[0].File)
			assert.GreaterOrEqual(t, warnings[0].Line, 2)
			assert.Contains(t, warnings[1].Text, "the sandbox profile cannot be used")
		})
	}
	for _, name := range []string{"none", "a b", "UPPER"} {
		_, warnings := LoadSandboxes([]string{write(t, map[string]string{"sandboxes/" + name + ".sandbox": "[Sandbox]\n"})})
		require.NotEmpty(t, warnings)
		assert.Contains(t, warnings[0].Text, "invalid name")
	}
}

func TestLoadAgents_Sandbox(t *testing.T) {
	root := write(t, map[string]string{
		"sandboxes/workspace.sandbox": "[Sandbox]\n",
		"agents/a.agent": "[Agent]\nCommand=a\nSandbox=workspace\n[Sandbox]\nWritable=%h/.a/ ${A_HOME}/\nReadOnly=%h/.a/c\n" +
			"Default=A_HOME=%h/.a\n",
		"agents/b.agent": "[Agent]\nCommand=b\nSandbox=none\n",
		"agents/c.agent": "[Agent]\nCommand=c\nSandbox=missing\n",
		"agents/d.agent": "[Agent]\nCommand=d\nSandbox=../x\n",
	})
	agents, warnings := LoadAgents([]string{root})
	a := agents["a"]
	assert.Equal(t, "workspace", a.Sandbox)
	assert.Equal(t, []string{"%h/.a/", "${A_HOME}/"}, a.SandboxWritable)
	assert.Equal(t, []string{"%h/.a/c"}, a.SandboxReadOnly)
	assert.Equal(t, []string{"A_HOME=%h/.a"}, a.SandboxDefaults)
	assert.Equal(t, NoSandbox, agents["b"].Sandbox)
	// The daemon refuses to start it: it must not run without the sandbox.
	assert.Equal(t, "missing", agents["c"].Sandbox)
	assert.Equal(t, []string{
		`c.agent:3: Sandbox=: no usable sandbox profile "missing"; usable are: workspace`,
		`d.agent:3: Sandbox=: invalid name "../x" of a sandbox profile, ignored`,
	}, shortLines(warnings))
}

// shortLines returns warnings with the base names of their files.
func shortLines(warnings []Warning) (lines []string) {
	for _, w := range warnings {
		w.File = filepath.Base(w.File)
		lines = append(lines, w.String())
	}
	return lines
}
