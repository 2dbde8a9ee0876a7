//go:build e2e

package e2e

import (
	"bufio"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestLinger checks that lingering is reported correctly, that a change of it is published, and
// that an unprivileged user gets a hint about who may change it.
func TestLinger(t *testing.T) {
	onEach(t, func(t *testing.T, d *desk) {
		lingering := func() string {
			return d.do("busctl", "--user", "get-property", "io.github.corrald.Corral1", "/io/github/corrald/Corral1",
				"io.github.corrald.Corral1.Manager", "Lingering")
		}
		assert.Contains(t, d.do("corralctl", "linger"), "Lingering is on")
		assert.Equal(t, "b true", lingering())

		defer d.login()() // without a login session and without lingering the user's manager would exit at once
		changes := d.listen()
		if out, code := d.try("corralctl", "linger", "off"); d.polkit() {
			assert.Equal(t, 0, code)
			assert.Equal(t, "Lingering is off: sessions end when you log out.", out)
		} else {
			assert.Equal(t, 1, code)
			assert.Equal(t, "corralctl: cannot turn lingering off: "+
				"the login manager does not allow it without an administrator\n"+
				"hint: sudo loginctl disable-linger ann", out)
			d.Run("loginctl", "disable-linger", "ann")
		}
		changes(`"Lingering"`, `BOOLEAN false`)
		assert.Contains(t, d.do("corralctl", "linger"), "Lingering is off")
		assert.Equal(t, "b false", lingering())
		d.Run("loginctl", "enable-linger", "ann")
		changes(`"Lingering"`, `BOOLEAN true`)
	})
}

// polkit reports whether the machine has polkit, which can grant privileges to ordinary users.
func (d *desk) polkit() bool {
	_, code := d.try("sh", "-c", "command -v pkcheck")
	return code == 0
}

// listen monitors the daemon's messages on the user's bus. It returns a function that waits until
// messages with these words have arrived in this order.
func (d *desk) listen() (until func(words ...string)) {
	d.t.Helper()
	cmd := d.Command(d.user, "sh", "-c", "exec busctl --user monitor io.github.corrald.Corral1 2>&1")
	out, err := cmd.StdoutPipe()
	require.NoError(d.t, err)
	require.NoError(d.t, cmd.Start())
	d.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := make(chan string, 4096)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
	}()
	until = func(words ...string) {
		d.t.Helper()
		deadline := time.After(30 * time.Second)
		for {
			select {
			case line, ok := <-lines:
				require.True(d.t, ok, "the monitor ended")
				if strings.Contains(line, words[0]) {
					words = words[1:]
				}
				if len(words) == 0 {
					return
				}
			case <-deadline:
				d.t.Fatalf("nothing with %q came over the bus", words)
			}
		}
	}
	until("Monitoring")
	return until
}
