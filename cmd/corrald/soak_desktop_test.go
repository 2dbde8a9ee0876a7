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

// testDesktop is a notification server and its display: the real dunst, whose display may
// disappear, or a fake server that hangs on request, which no real one does.
type testDesktop struct {
	t     *testing.T
	dir   string
	bus   *dbus.Conn
	x     *exec.Cmd // the display, nil if there is none
	dunst *exec.Cmd
	fake  *testbed.NotificationServer
	hangs chan struct{}  // closed when the fake server continues, nil if it does not hang
	shown map[string]int // by session
	read  int            // bytes of dunst's output that were read
}

// desktopFaults are the faults of the desktop.
var desktopFaults = map[string]func(*testDesktop, bool){
	"a server comes":       (*testDesktop).startServer,
	"a server goes":        (*testDesktop).stopServer,
	"a server hangs":       func(s *testDesktop, _ bool) { s.setHanging(true) },
	"a server continues":   func(s *testDesktop, _ bool) { s.setHanging(false) },
	"the display goes":     func(s *testDesktop, _ bool) { s.killDisplay() },
	"the display comes":    func(s *testDesktop, _ bool) { s.startDisplay() },
	"somebody closes all":  func(s *testDesktop, _ bool) { s.closeAll() },
	"a server is replaced": func(s *testDesktop, kind bool) { s.stopServer(kind); s.startServer(!kind) },
}

// writeConfiguration writes dunst's configuration, which makes dunst record each notification that
// it shows.
func (s *testDesktop) writeConfiguration() {
	s.shown = map[string]int{}
	script := filepath.Join(s.dir, "show")
	require.NoError(s.t, os.WriteFile(script,
		fmt.Appendf(nil, "#!/bin/sh\nprintf '%%s\\n%%s\\n' \"$DUNST_SUMMARY\" \"$DUNST_BODY\" >> %s/shown\n", s.dir), 0o700))
	require.NoError(s.t, os.WriteFile(filepath.Join(s.dir, "dunstrc"),
		fmt.Appendf(nil, "[global]\nnotification_limit = 100\n[log]\nsummary = \"*\"\nscript = %s\n", script), 0o600))
}

// startDisplay starts the display.
func (s *testDesktop) startDisplay() {
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

// killDisplay kills the display, and dunst with it.
func (s *testDesktop) killDisplay() {
	endProcess(&s.x, syscall.SIGKILL)
	if s.dunst != nil {
		_ = s.dunst.Process.Signal(syscall.SIGCONT)
		_ = s.dunst.Wait()
		s.dunst = nil
		s.waitNoServer()
	}
}

// startServer starts a server, dunst or the fake one, if there is none.
func (s *testDesktop) startServer(isReal bool) {
	if s.dunst != nil || s.fake != nil {
		s.setHanging(false)
		return
	}
	if !isReal {
		s.fake = testbed.StartNotificationServer(s.t, "actions", "body-markup")
		return
	}
	s.startDisplay()
	dunst := exec.Command("dunst", "-conf", filepath.Join(s.dir, "dunstrc"))
	require.NoError(s.t, dunst.Start())
	s.dunst = dunst
	testbed.Poll(s.t, "dunst on the bus", s.isServerOnBus)
}

// stopServer stops the server, by SIGTERM (kindly) or by SIGKILL.
func (s *testDesktop) stopServer(kindly bool) {
	s.countShown()
	if s.fake != nil {
		s.fake.Crash()
		s.fake = nil // notifications that it has not replied to were not shown
		s.setHanging(false)
	}
	signal := syscall.SIGKILL
	if kindly {
		s.setHanging(false)
		signal = syscall.SIGTERM
	}
	endProcess(&s.dunst, signal)
	s.waitNoServer()
}

// stopAll stops the server and the display.
func (s *testDesktop) stopAll() {
	s.stopServer(false)
	s.killDisplay()
}

// setHanging makes the server stop replying, or continue.
func (s *testDesktop) setHanging(on bool) {
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

// closeAll closes all notifications, as a person does.
func (s *testDesktop) closeAll() {
	if s.fake != nil {
		for _, id := range s.fake.Live() {
			s.fake.Dismiss(s.t, id, 2)
		}
	}
	if s.dunst != nil {
		s.setHanging(false)
		_ = exec.Command("dunstctl", "close-all").Run()
	}
}

var titled = regexp.MustCompile(`(?m)^(n\d+): `)

// countShown counts the notifications shown since the last call.
func (s *testDesktop) countShown() {
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

func (s *testDesktop) isServerOnBus() bool {
	var owned bool
	err := s.bus.BusObject().Call("org.freedesktop.DBus.NameHasOwner", 0, "org.freedesktop.Notifications").Store(&owned)
	return err == nil && owned
}

func (s *testDesktop) waitNoServer() {
	testbed.Poll(s.t, "no server on the bus", func() bool { return !s.isServerOnBus() })
}

// endProcess signals a process, if there is one, and waits for its exit.
func endProcess(c **exec.Cmd, signal syscall.Signal) {
	if *c != nil {
		_ = (*c).Process.Signal(signal)
		_ = (*c).Wait()
		*c = nil
	}
}
