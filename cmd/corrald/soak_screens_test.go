package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed"
)

// screens is what may show notifications: the real dunst, on a display that may go from under it,
// or a server that does what no real one does when asked.
type screens struct {
	t     *testing.T
	dir   string
	bus   *dbus.Conn
	x     *exec.Cmd // the display, nil if there is none
	dunst *exec.Cmd
	fake  *testbed.NotificationServer
	hangs chan struct{}  // closed when the fake hangs no more, nil if it does not
	shown map[string]int // by session
	read  int            // bytes of what dunst has shown that were read
}

// upsets are what is done to them.
var upsets = map[string]func(*screens, bool){
	"a server comes":       (*screens).show,
	"a server goes":        (*screens).hide,
	"a server hangs":       func(s *screens, _ bool) { s.hang(true) },
	"a server goes on":     func(s *screens, _ bool) { s.hang(false) },
	"the display goes":     func(s *screens, _ bool) { s.blank() },
	"the display comes":    func(s *screens, _ bool) { s.light() },
	"somebody closes all":  func(s *screens, _ bool) { s.dismiss() },
	"a server is replaced": func(s *screens, kind bool) { s.hide(kind); s.show(!kind) },
}

// prepare writes dunst's configuration, by which each notification that it shows is written down.
func (s *screens) prepare() {
	s.shown = map[string]int{}
	script := filepath.Join(s.dir, "show")
	require.NoError(s.t, os.WriteFile(script, fmt.Appendf(nil, "#!/bin/sh\nprintf '%%s\\n%%s\\n' \"$DUNST_SUMMARY\" \"$DUNST_BODY\" >> %s/shown\n", s.dir), 0o700))
	require.NoError(s.t, os.WriteFile(filepath.Join(s.dir, "dunstrc"), fmt.Appendf(nil, "[global]\nnotification_limit = 100\n[log]\nsummary = \"*\"\nscript = %s\n", script), 0o600))
}

// light starts the display.
func (s *screens) light() {
	if s.x != nil {
		return
	}
	x := exec.Command("Xvfb", "-displayfd", "1", "-screen", "0", "640x360x24", "-nolisten", "tcp")
	number, err := x.StdoutPipe()
	require.NoError(s.t, err)
	require.NoError(s.t, x.Start())
	line, err := bufio.NewReader(number).ReadString('\n')
	require.NoError(s.t, err)
	s.x = x
	s.t.Setenv("DISPLAY", ":"+strings.TrimSpace(line))
}

// blank takes the display away, and dunst with it.
func (s *screens) blank() {
	end(&s.x, syscall.SIGKILL)
	if s.dunst != nil {
		_ = s.dunst.Process.Signal(syscall.SIGCONT)
		_ = s.dunst.Wait()
		s.dunst = nil
		s.unowned()
	}
}

// show starts a server, the real one or the fake, if there is none.
func (s *screens) show(isReal bool) {
	if s.dunst != nil || s.fake != nil {
		s.hang(false)
		return
	}
	if !isReal {
		s.fake = testbed.StartNotificationServer(s.t, "actions", "body-markup")
		return
	}
	s.light()
	dunst := exec.Command("dunst", "-conf", filepath.Join(s.dir, "dunstrc"))
	require.NoError(s.t, dunst.Start())
	s.dunst = dunst
	testbed.Poll(s.t, "dunst on the bus", s.owned)
}

// hide takes the server away, kindly or not.
func (s *screens) hide(kindly bool) {
	s.gather()
	if s.fake != nil {
		s.fake.Crash()
		s.fake = nil // what it was asked and has not answered, it has not shown
		s.hang(false)
	}
	signal := syscall.SIGKILL
	if kindly {
		s.hang(false)
		signal = syscall.SIGTERM
	}
	end(&s.dunst, signal)
	s.unowned()
}

// leave takes everything away.
func (s *screens) leave() {
	s.hide(false)
	s.blank()
}

// hang has the server answer nothing, or go on.
func (s *screens) hang(on bool) {
	if s.dunst != nil {
		signal := syscall.SIGCONT
		if on {
			signal = syscall.SIGSTOP
		}
		_ = s.dunst.Process.Signal(signal)
	}
	if s.hangs != nil && !on {
		if s.fake != nil {
			s.fake.OnNotify(nil)
		}
		close(s.hangs)
		s.hangs = nil
	}
	if s.fake != nil && on && s.hangs == nil {
		hangs := make(chan struct{})
		s.fake.OnNotify(func(testbed.Notification) *dbus.Error {
			<-hangs
			return nil
		})
		s.hangs = hangs
	}
}

// dismiss closes all that is shown, as a person does.
func (s *screens) dismiss() {
	if s.fake != nil {
		for _, id := range s.fake.Live() {
			s.fake.Dismiss(s.t, id, 2)
		}
	}
	if s.dunst != nil {
		s.hang(false)
		_ = exec.Command("dunstctl", "close-all").Run()
	}
}

var titled = regexp.MustCompile(`(?m)^(n\d+): `)

// gather takes note of what was shown.
func (s *screens) gather() {
	var text strings.Builder
	for more := s.fake != nil; more; {
		select {
		case n := <-s.fake.Shown:
			text.WriteString(n.Title + "\n" + n.Body + "\n")
		default:
			more = false
		}
	}
	if content, err := os.ReadFile(s.dir + "/shown"); err == nil {
		whole := content[:strings.LastIndexByte(string(content), '\n')+1]
		text.Write(whole[s.read:])
		s.read = len(whole)
	}
	for _, m := range titled.FindAllStringSubmatch(text.String(), -1) {
		s.shown[m[1]]++
	}
}

func (s *screens) owned() bool {
	var owned bool
	err := s.bus.BusObject().Call("org.freedesktop.DBus.NameHasOwner", 0, "org.freedesktop.Notifications").Store(&owned)
	return err == nil && owned
}

func (s *screens) unowned() {
	testbed.Poll(s.t, "no server on the bus", func() bool { return !s.owned() })
}

// end ends a process, if there is one, and waits for it.
func end(c **exec.Cmd, signal syscall.Signal) {
	if *c != nil {
		_ = (*c).Process.Signal(signal)
		_ = (*c).Wait()
		*c = nil
	}
}
