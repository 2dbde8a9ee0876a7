package supervisor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/config"
)

func TestCheckControl_ByAncestry(t *testing.T) {
	supervise(t, func(b *bed) {
		create := func(id, parent string) {
			_, err := b.sup.Create(b.t.Context(), "command",
				Spec{ID: id, Command: []string{"x"}, WorkingDirectory: b.t.TempDir(), NoStart: true, Parent: parent})
			require.NoError(b.t, err)
			<-time.After(time.Second)
		}
		create("other", "")
		create("lead", "")
		create("worker", "lead")
		create("helper", "worker")
		creates := Control{Caller: "lead", Creates: true}
		permitted := func(by, target string) bool {
			err := b.sup.CheckControl(Control{Caller: by, Target: target})
			if err != nil {
				assert.Equal(t, NotPermitted, kindOf(err))
			}
			return err == nil
		}
		set := func(value, ofAgent string) {
			conf := config.Default()
			conf.AgentsMayControl = value
			agents := config.Agents{"command": {Name: "command", AgentsMayControl: ofAgent}}
			require.NoError(t, b.sup.Reload(conf, agents))
		}
		for _, own := range []string{"lead", "worker", "helper", "nobody"} {
			assert.True(t, permitted("lead", own), own)
		}
		assert.False(t, permitted("lead", "other"))
		assert.False(t, permitted("lead", ""), "all sessions")
		assert.False(t, permitted("worker", "lead"), "its parent")
		assert.True(t, permitted("nobody", "other"), "a session that was removed meanwhile")

		set(config.ControlNone, "")
		assert.False(t, permitted("lead", "lead"))
		assert.False(t, permitted("lead", "worker"))
		assert.Equal(t, NotPermitted, kindOf(b.sup.CheckControl(creates)))
		set(config.ControlNone, config.ControlAll)
		assert.True(t, permitted("lead", "other"))
		assert.True(t, permitted("lead", ""))
		require.NoError(t, b.sup.CheckControl(creates))
		set(config.ControlDescendants, "")

		require.NoError(t, b.sup.Remove(b.t.Context(), "worker", false))
		assert.False(t, permitted("lead", "helper"), "its parent is unknown")
		create("worker", "lead")
		assert.False(t, permitted("lead", "helper"), "another session has the id of its parent")
	})
}

// TestCheckControl_OwnPermission: an agent cannot answer its own request.
func TestCheckControl_OwnPermission(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.startWithShim()
		input := Control{Caller: "shop", Target: "shop", Types: true}
		require.NoError(t, b.sup.CheckControl(input))
		s.reportStatus(5, "waiting", "permission")
		s.attention()
		assert.Equal(t, NotPermitted, kindOf(b.sup.CheckControl(input)))
		input.Types = false
		require.NoError(t, b.sup.CheckControl(input))
	})
}
