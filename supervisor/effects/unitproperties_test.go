package effects

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/supervisor/session"
)

// TestNewScope_UsesTheLastValueOfALimit checks limits in both forms: a percentage, as in
// MemoryMax=50%, sets another property of systemd (MemoryMaxScale) than a number does.
func TestNewScope_UsesTheLastValueOfALimit(t *testing.T) {
	plan := supervisor.Plan{
		Unit:          "app-corral-claude-shop.scope",
		ScopeSettings: []string{"MemoryMax=50%", "TasksMax=10%", "OOMPolicy=stop", "MemoryMax=1G", "TasksMax=99"},
		Properties: []session.Property{
			{Name: "TasksMaxScale", Signature: "u", Value: "7"}, {Name: "OOMPolicy", Signature: "s", Value: `"kill"`},
		},
	}
	scope, err := newScope(plan)
	require.NoError(t, err)
	given := map[string]any{}
	for _, p := range append(scope.Properties, scope.Optional...) {
		assert.NotContains(t, given, p.Name)
		given[p.Name] = p.Value.Value()
	}
	assert.Equal(t, uint64(1<<30), given["MemoryMax"])
	assert.NotContains(t, given, "MemoryMaxScale")
	assert.Equal(t, uint32(7), given["TasksMaxScale"])
	assert.NotContains(t, given, "TasksMax")
	assert.Equal(t, "kill", given["OOMPolicy"])
}
