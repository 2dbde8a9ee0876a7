//go:build e2e && desktops

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed/machine"
)

// desktop is a graphical environment of an ordinary user on a machine.
type desktop struct {
	name     string
	packages []string // of Debian 13
	display  display

	// login opens a session of the desktop, as a display manager does, and returns once its
	// notification server runs and its windows are shown.
	login func(s *seat)

	// disturb turns Do Not Disturb off, or on.
	disturb func(s *seat, may bool)
}

var desktops = []desktop{xfce, gnome, plasma}

// TestDesktops checks on each desktop that the notification about a session is shown, that its
// button opens a focused terminal attached to the session, that Do Not Disturb hides the
// notification of a failure, and that many failures at once become one notification. What is shown
// is read from pictures of the screen; clicks and keys are events of the display server.
func TestDesktops(t *testing.T) {
	packages := t.TempDir()
	out, err := exec.Command("../scripts/dist.sh", "1.0", filepath.Join(packages, "root"), "deb").CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, desktop := range desktops {
		t.Run(desktop.name, func(t *testing.T) {
			root := machine.DebianWithApt(t, "trixie", append(desktop.packages, readers...)...)
			m := machine.Boot(t, machine.Options{Root: root})
			m.Install(packages)
			m.Run("sh", "-c", "exec dpkg --install /root/corral_1.0_"+runtime.GOARCH+".deb 2>&1")
			m.Run("useradd", "--create-home", "--shell", "/bin/bash", "bob")
			s := &seat{desk: &desk{m, t, "bob"}, display: desktop.display, pictures: pictures(t)}
			desktop.login(s)
			s.save("login")

			s.opensFromANotification()
			s.holdsAFailure(desktop.disturb)
			s.summarisesFailures()
		})
	}
}

// pictures returns a directory for the pictures of this test: below DESKTOPS_PICTURES if that is
// set, else a temporary one, which is kept if the test fails.
func pictures(t *testing.T) string {
	t.Helper()
	name := strings.ReplaceAll(strings.ToLower(t.Name()), "/", "-")
	dir := os.Getenv("DESKTOPS_PICTURES")
	if dir != "" {
		dir = filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(dir, 0o755))
	} else {
		var err error
		dir, err = os.MkdirTemp("", "corral-"+name+"-") //nolint:usetesting // it stays when the test has failed
		require.NoError(t, err)
	}
	t.Cleanup(func() {
		if t.Failed() || os.Getenv("DESKTOPS_PICTURES") != "" {
			t.Logf("pictures of the screen: %s", dir)
			return
		}
		_ = os.RemoveAll(dir)
	})
	return dir
}

// opensFromANotification starts an agent that asks a question, selects Open in the notification and
// types the answer. The agent reads it only if the terminal has the focus and is attached to the
// session.
func (s *seat) opensFromANotification() {
	s.t.Helper()
	s.run("shop", "--", "sh", "-c",
		`corralctl report waiting --reason question --message "Which database"; echo "Type the name of the database"; read -r answer; printf %s "$answer" >"$HOME/answer"; exec sleep 1000`)
	s.awaitText("shop: has a question")
	s.save("question")
	s.point("question") // GNOME Shell shows the buttons then
	s.click("Open")
	s.await("a terminal attached to the session", func() bool {
		clients, _ := s.try("sh", "-c", `tmux -S "$XDG_RUNTIME_DIR/corral/shop/tmux" list-clients`)
		return strings.Contains(clients, "attached")
	})
	// A desktop gives the focus to a window as it shows it.
	s.awaitText("Type the name of the database")
	s.save("open")
	s.display.press(s, "postgres 5432")
	s.await("the answer that was typed", func() bool {
		answer, _ := s.try("cat", "answer")
		return answer != ""
	})
	assert.Equal(s.t, "postgres 5432", s.do("cat", "answer"))
	s.save("answered")

	// A terminal that is attached would show the failures of other sessions, too.
	s.do("sh", "-c", `tmux -S "$XDG_RUNTIME_DIR/corral/shop/tmux" detach-client -s =shop`)
	s.awaitGone("Type the name of the database")
}

// holdsAFailure checks that the notification of a failure is not shown while Do Not Disturb is on,
// and that notifications are shown again after that.
func (s *seat) holdsAFailure(disturb func(s *seat, may bool)) {
	s.t.Helper()
	disturb(s, false)
	notified := s.notified()
	s.run("quiet", "--", "sh", "-c", "exit 3")
	notified("quiet: failed, exit 3")
	// There is no event for a desktop that shows nothing. The server has accepted the notification;
	// without Do Not Disturb it appears within half a second.
	deadline := time.After(3 * time.Second)
	for waiting := true; waiting; {
		assert.False(s.t, s.read(nil).has("quiet: failed"),
			"the notification of a failure was shown in spite of Do Not Disturb")
		select {
		case <-deadline:
			waiting = false
		default:
		}
	}
	s.save("do-not-disturb")
	disturb(s, true)
	s.run("loud", "--", "sh", "-c", "exit 3")
	s.awaitText("loud: failed, exit 3")
	s.save("disturbed")
	s.do("corralctl", "rm", "quiet", "loud")
}

// summarisesFailures makes twenty sessions fail at once and expects one notification.
func (s *seat) summarisesFailures() {
	s.t.Helper()
	s.do("sh", "-c", `for i in $(seq 20); do corralctl run --id "batch$i" -- sh -c 'until [ -e "$HOME/go" ]; do sleep 0.1; done; exit 1' & done; wait; touch go`)
	s.awaitText("20 sessions need attention")
	s.save("summary")
}
