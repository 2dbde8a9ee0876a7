package units

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed"
)

func showUnit(t *testing.T, unit, property string) string {
	t.Helper()
	out, err := exec.Command("systemctl", "--user", "show", "-P", property, unit).Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

func TestSetTimer_RunsTheProgramOnce(t *testing.T) {
	m := connect(t)
	ran := filepath.Join(t.TempDir(), "ran")
	timer := Timer{
		Name: "corral-test-once", Description: "A test of $HOME and %h", Slice: "app.slice",
		Argv: []string{"/bin/sh", "-c", `echo "$1" >>"$0"`, ran, "100% of $HOME; $(id)"},
	}
	for name, at := range map[string]time.Time{
		"past": time.Now().Add(-time.Hour), "now": time.Now(), "soon": time.Now().Add(3 * time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, m.SetTimer(t.Context(), timer, at))
			testbed.Poll(t, "the program has run", func() bool { _, err := os.Stat(ran); return err == nil })
			assert.False(t, time.Now().Before(at))
			testbed.Poll(t, "the units are unloaded", func() bool {
				return showUnit(t, timer.Name+".timer", "LoadState") == "not-found" &&
					showUnit(t, timer.Name+".service", "LoadState") == "not-found"
			})
			text, err := os.ReadFile(ran)
			require.NoError(t, err)
			assert.Equal(t, "100% of $HOME; $(id)\n", string(text))
			require.NoError(t, os.Remove(ran))
		})
	}
}

func TestSetTimer_ReplacesTheTimer(t *testing.T) {
	m := connect(t)
	timer := Timer{Name: "corral-test-later", Description: "A test", Slice: "app.slice", Argv: []string{"/bin/false"}}
	for _, days := range []int{400, 1, 30, 7} {
		at := time.Now().AddDate(0, 0, days).Truncate(time.Second)
		require.NoError(t, m.SetTimer(t.Context(), timer, at))
		testbed.Poll(t, "systemd has activated the timer", func() bool {
			return showUnit(t, timer.Name+".timer", "ActiveState") == "active"
		})
		assert.Equal(t, at.Format("Mon 2006-01-02 15:04:05 MST"),
			showUnit(t, timer.Name+".timer", "NextElapseUSecRealtime"))
	}
	for range 2 {
		require.NoError(t, m.RemoveTimer(t.Context(), timer.Name))
		assert.NotEqual(t, "active", showUnit(t, timer.Name+".timer", "ActiveState"))
	}
}
