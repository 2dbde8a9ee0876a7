package main

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed"
)

// TestExits_ManyAtOnceSurviveDaemonCrash ends many agents while the daemon is running, is not
// running, or is killed meanwhile: afterwards every exit code is known and belongs to the right
// session. CORRAL_CROWD=N sets the number of sessions.
func TestExits_ManyAtOnceSurviveDaemonCrash(t *testing.T) {
	n := 60
	if text := os.Getenv("CORRAL_CROWD"); text != "" {
		_, err := fmt.Sscanf(text, "%d", &n)
		require.NoError(t, err, "CORRAL_CROWD=%s", text)
	}
	for name, end := range map[string]func(d *corrald, open func()){
		"corrald is there": func(_ *corrald, open func()) { open() },
		"corrald is away": func(d *corrald, open func()) {
			d.kill(syscall.SIGKILL)
			open()
			for i := range n {
				testbed.WaitFile(d.t, d.stateDir(crowdID(i))+"/exit_status", nil)
			}
			d.launch()
		},
		"corrald is killed meanwhile": func(d *corrald, open func()) {
			mark := d.signals.mark()
			open()
			d.await(d.t, mark, "the first exit", func(s *dbus.Signal) bool {
				c, changed := stateChange(s)
				return changed && c.before == "running"
			})
			d.kill(syscall.SIGKILL)
			d.launch()
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := startDaemon(t, "MaxSessions="+strconv.Itoa(n))
			gate := d.dir + "/gate"
			require.NoError(t, syscall.Mkfifo(gate, 0o600))
			d.crowdWith(t, "many", n, func(i int) spec {
				// The shell's open of the gate blocks until the test opens it for writing.
				return spec{"Command": []string{"sh", "-c", fmt.Sprintf(`read -r line <"$0"; exit %d`, crowdCode(i)), gate}}
			})
			for i := range n {
				d.session(t, crowdID(i)).waitState("running")
			}
			begin := time.Now()
			end(d, func() {
				writer, err := os.OpenFile(gate, os.O_RDWR, 0) // an agent that has not reached the gate yet finds it open
				require.NoError(t, err)
				t.Cleanup(func() { _ = writer.Close() })
				for range n {
					_, err := writer.WriteString("\n")
					require.NoError(t, err)
				}
			})
			for i := range n {
				want := outcome{"failed", "exit-code", 1, crowdCode(i),
					fmt.Sprintf("command exited with code %d", crowdCode(i)), "error"}
				if crowdCode(i) == 0 {
					want = outcome{"completed", "success", 1, 0, "", "active"}
				}
				d.session(t, crowdID(i)).waitOutcome(want)
			}
			t.Logf("%d exits, all known after %v", n, time.Since(begin).Round(time.Millisecond))
		})
	}
}

func crowdID(i int) string { return fmt.Sprintf("many-%d", i) }

// crowdCode returns different codes for neighbours.
func crowdCode(i int) int { return i % 256 }
