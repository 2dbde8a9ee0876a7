//go:build agents

package agents

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestStop_EndsGemini stops Gemini CLI, whose outer process ignores signals that are sent to it
// alone.
func TestStop_EndsGemini(t *testing.T) {
	f := newFixture(t)
	s := f.run("gemini", "shop")
	s.shows("Type your message")
	group, asked := s.is("running").ControlGroup, time.Now()
	f.corralctl("stop", "shop")
	t.Logf("it took %v", time.Since(asked).Round(time.Millisecond))
	assert.Less(t, time.Since(asked), 8*time.Second, "it was asked, and did not have to be killed")
	now := s.is("stopped")
	assert.EqualValues(t, 1, now.ExecMainCode)
	assert.EqualValues(t, 0, now.ExecMainStatus)
	assert.NoDirExists(t, "/sys/fs/cgroup"+group)
}
