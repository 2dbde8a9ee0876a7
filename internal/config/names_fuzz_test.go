package config

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/corrald/corral/internal/unitname"
)

// FuzzValidName checks that valid ids and agent names can be file names and parts of unit names
// without escaping.
func FuzzValidName(f *testing.F) {
	for _, seed := range []string{"shop", "shop-2", "a.", "a-", "..", "a/b", "a\n", "A"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if !ValidName(name) {
			return
		}
		assert.LessOrEqual(t, len(name), 64)
		assert.Regexp(t, `\A[a-z0-9][a-z0-9._-]*\z`, name)
		assert.NotRegexp(t, `[.-]\z`, name)
	})
}

// FuzzValidAgentName checks that the parts of an agent's name are names, that its file is in the
// directory of the definitions, and that its specifiers have no effect.
func FuzzValidAgentName(f *testing.F) {
	for _, seed := range append(hostileNames, "claude", "claude@work", "a-b@c-d") {
		f.Add(seed, "shop")
	}
	f.Fuzz(func(t *testing.T, name, id string) {
		template, instance, isInstance := CutInstance(name)
		isTemplate := IsTemplate(name)
		if isTemplate {
			assert.Equal(t, template+"@", name)
			assert.True(t, ValidName(template))
		}
		if !ValidAgentName(name) {
			return
		}
		assert.False(t, isTemplate)
		assert.True(t, ValidName(template))
		assert.Equal(t, isInstance, ValidName(instance))
		assert.Equal(t, "/dir/agents/"+name+".agent", AgentFile("/dir", name))
		expanded, err := Expand([]string{"%I"}, Specifiers{Instance: instance})
		assert.Equal(t, isInstance, err == nil)
		if isInstance {
			assert.Equal(t, []string{instance}, expanded)
		}
		if !ValidName(id) {
			return
		}
		unit := unitname.Scope(name, id)
		assert.Less(t, len(unit), 256)
		assert.Regexp(t, `\A[A-Za-z0-9:_.-]+\.scope\z`, unit) // what systemd accepts
		agents, ids := unitname.SplitScope(unit)
		found := 0
		for i := range agents {
			if agents[i] == name && ids[i] == id {
				found++
			}
		}
		assert.Equal(t, 1, found, unit)
	})
}
