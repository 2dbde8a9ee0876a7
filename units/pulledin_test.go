package units

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed"
)

// TestPulledIn_ListsInstancesThatOtherUnitsStart covers a timer, the target of an enabled instance,
// and a service that requires one. An instance that was only started, or that is loaded only
// because it has failed, is not listed.
func TestPulledIn_ListsInstancesThatOtherUnitsStart(t *testing.T) {
	m := connect(t)
	dir := filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "systemd", "user")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for name, text := range map[string]string{
		"pull@.service": "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=true\n" +
			"[Install]\nWantedBy=default.target\n",
		"pull@failed.service": "[Service]\nType=oneshot\nExecStart=false\n",
		"pull@nightly.timer":  "[Timer]\nOnCalendar=2100-01-01\n",
		"other-name.timer":    "[Timer]\nOnCalendar=2100-01-01\nUnit=pull@other.service\n",
		"pull-requires.service": "[Unit]\nRequires=pull@required.service\n" +
			"[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=true\n",
	} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		t.Cleanup(func() { _ = os.Remove(path) })
	}
	pulled := func() []string {
		t.Helper()
		instances, err := m.PulledIn(t.Context(), "pull@", ".service")
		require.NoError(t, err)
		return instances
	}
	testbed.Systemctl(t, "daemon-reload")
	assert.Empty(t, pulled())
	testbed.Systemctl(t, "start", "pull@by-hand.service", "pull@nightly.timer", "other-name.timer",
		"pull-requires.service")
	testbed.Systemctl(t, "enable", "pull@enabled.service")
	testbed.Systemctl(t, "start", "--no-block", "pull@failed.service")
	assert.ElementsMatch(t, []string{"nightly", "other", "required", "enabled"}, pulled())

	testbed.Systemctl(t, "disable", "pull@enabled.service")
	testbed.Systemctl(t, "stop", "pull@nightly.timer", "other-name.timer", "pull-requires.service",
		"pull@required.service", "pull@by-hand.service")
	testbed.Poll(t, "that nothing starts them any more", func() bool { return len(pulled()) == 0 })
	testbed.Systemctl(t, "reset-failed")
}
