package supervisor

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/supervisor/session"
)

// TestLog_HasFailuresAsErrors: failures are logged as errors, with what ended the agent and when it
// last printed something, degraded sessions as warnings, other changes as information.
func TestLog_HasFailuresAsErrors(t *testing.T) {
	supervise(t, func(b *bed) {
		b.sup.loop.log = slog.New(slog.NewJSONHandler(b.log, nil))
		last := func() map[string]any {
			t.Helper()
			synctest.Wait()
			lines := strings.Split(strings.TrimSpace(b.log.String()), "\n")
			record := map[string]any{}
			require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &record))
			return record
		}
		printed := time.Date(1999, 12, 31, 23, 59, 58, 5000, time.UTC)
		begin := func(id string) {
			b.start(id)
			log := filepath.Join(b.records.SessionDir(id), shimwire.LogName)
			require.NoError(t, os.MkdirAll(filepath.Dir(log), 0o700))
			require.NoError(t, os.WriteFile(log, []byte("out"), 0o600))
			require.NoError(t, os.Chtimes(log, printed, printed))
		}
		holds := func(want map[string]any, without ...string) {
			t.Helper()
			got := last()
			for key, value := range want {
				assert.Equal(t, value, got[key], key)
			}
			for _, key := range without {
				assert.NotContains(t, got, key)
			}
		}
		const printedText = "1999-12-31T23:59:58.000005Z"

		begin("code")
		holds(map[string]any{"level": "INFO", "state": "running", "session": "code"},
			"exit_code", "signal", "last_activity", "result")
		b.exit("code", 3)
		holds(map[string]any{
			"level": "ERROR", "msg": "the state of a session has changed",
			"text":    "code: running -> failed (command exited with code 3)",
			"session": "code", "state": "failed", "result": "exit-code", "exit_code": 3.,
			"last_activity": printedText, "unit": "app-corral-command-code.scope",
		}, "signal")

		for code, result := range map[exitstatus.Code]string{exitstatus.Killed: "signal", exitstatus.Dumped: "core-dump"} {
			begin(result)
			b.onLoop(func() {
				e := b.sup.loop.sessions.byID[result]
				e.apply(session.AgentExited{Status: exitstatus.Status{
					RunID: e.rec.Run.ID, Code: code, Value: int(unix.SIGSEGV), Started: e.rec.Run.Started, Exited: time.Now(),
				}})
			})
			holds(map[string]any{
				"level": "ERROR", "result": result, "signal": "SIGSEGV", "last_activity": printedText,
			}, "exit_code")
		}

		begin("well")
		b.exit("well", 0)
		holds(map[string]any{"level": "INFO", "state": "completed", "exit_code": 0.}, "last_activity")

		begin("stale")
		b.onLoop(func() {
			b.sup.loop.sessions.byID["stale"].apply(session.TmuxDied{Run: b.sup.loop.sessions.byID["stale"].rec.Run.ID})
		})
		holds(map[string]any{"level": "WARN", "state": "stale", "last_activity": printedText}, "exit_code", "signal")
	})
}
