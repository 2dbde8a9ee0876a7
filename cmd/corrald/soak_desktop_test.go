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

// desktopFaults are the faults of the desktop, by name. The random argument of each selects one of
// its variants, if it has any: which server starts, or how it is stopped.
var desktopFaults = map[string]func(*testDesktop, bool){
	"a server comes":       (*testDesktop).startServer,
	"a server goes":        (*testDesktop).stopServer,
	"a server hangs":       func(d *testDesktop, _ bool) { d.setHanging(true) },
	"a server continues":   func(d *testDesktop, _ bool) { d.setHanging(false) },
	"the display goes":     func(d *testDesktop, _ bool) { d.killDisplay() },
	"the display comes":    func(d *testDesktop, _ bool) { d.startDisplay() },
	personCloses:           func(d *testDesktop, _ bool) { d.closeAll() },
	"a server is replaced": func(d *testDesktop, random bool) { d.stopServer(random); d.startServer(!random) },
}

// personCloses is the fault that acknowledges the sessions whose notifications it closes.
const personCloses = "a person closes all"

// writeConfiguration writes dunst's configuration, which makes dunst record each notification that
// it shows.
func (d *testDesktop) writeConfiguration() {
	d.shown = map[string]int{}
	script := filepath.Join(d.dir, "show")
	require.NoError(d.t, os.WriteFile(script,
		fmt.Appendf(nil, "#!/bin/sh\nprintf '%%s\\n%%s\\n' \"$DUNST_SUMMARY\" \"$DUNST_BODY\" >> %s/shown\n", d.dir), 0o700))
	require.NoError(d.t, os.WriteFile(filepath.Join(d.dir, "dunstrc"),
		fmt.Appendf(nil, "[global]\nnotification_limit = 100\n[log]\nsummary = \"*\"\nscript = %s\n", script), 0o600))
}

// startDisplay starts the display.
func (d *testDesktop) startDisplay() {
	if d.x != nil {
		return
	}
	x := exec.Command("Xvfb", "-displayfd", "1", "-screen", "0", "640x360x24", "-nolisten", "tcp")
	number, err := x.StdoutPipe()
	require.NoError(d.t, err)
	require.NoError(d.t, x.Start())
	line, err := bufio.NewReader(number).ReadString('\n')
	require.NoError(d.t, err)
	d.x = x
	d.t.Setenv("DISPLAY", ":"+strings.TrimSpace(line))
}

// killDisplay kills the display, and dunst with it.
func (d *testDesktop) killDisplay() {
	endProcess(&d.x, syscall.SIGKILL)
	if d.dunst != nil {
		_ = d.dunst.Process.Signal(syscall.SIGCONT)
		_ = d.dunst.Wait()
		d.dunst = nil
		d.waitNoServer()
	}
}

// startServer starts a server, dunst or the fake one, if there is none.
func (d *testDesktop) startServer(isReal bool) {
	if d.dunst != nil || d.fake != nil {
		d.setHanging(false)
		return
	}
	if !isReal {
		d.fake = testbed.StartNotificationServer(d.t, "actions", "body-markup")
		return
	}
	d.startDisplay()
	dunst := exec.Command("dunst", "-conf", filepath.Join(d.dir, "dunstrc"))
	require.NoError(d.t, dunst.Start())
	d.dunst = dunst
	testbed.Poll(d.t, "dunst on the bus", d.isServerOnBus)
}

// stopServer stops the server, by SIGTERM (kindly) or by SIGKILL.
func (d *testDesktop) stopServer(kindly bool) {
	d.countShown()
	if d.fake != nil {
		d.fake.Crash()
		d.fake = nil // notifications that it has not replied to were not shown
		d.setHanging(false)
	}
	signal := syscall.SIGKILL
	if kindly {
		d.setHanging(false)
		signal = syscall.SIGTERM
	}
	endProcess(&d.dunst, signal)
	d.waitNoServer()
}

// stopAll stops the server and the display.
func (d *testDesktop) stopAll() {
	d.stopServer(false)
	d.killDisplay()
}

// setHanging makes the server stop replying, or continue.
func (d *testDesktop) setHanging(on bool) {
	if d.dunst != nil {
		signal := syscall.SIGCONT
		if on {
			signal = syscall.SIGSTOP
		}
		_ = d.dunst.Process.Signal(signal)
	}
	if d.hangs != nil && !on {
		if d.fake != nil {
			d.fake.OnNotify(nil)
		}
		close(d.hangs)
		d.hangs = nil
	}
	if d.fake != nil && on && d.hangs == nil {
		hangs := make(chan struct{})
		d.fake.OnNotify(func(testbed.Notification) *dbus.Error {
			<-hangs
			return nil
		})
		d.hangs = hangs
	}
}

// closeAll closes all notifications, as a person does.
func (d *testDesktop) closeAll() {
	if d.fake != nil {
		for _, id := range d.fake.Live() {
			d.fake.Dismiss(d.t, id, 2)
		}
	}
	if d.dunst != nil {
		d.setHanging(false)
		_ = exec.Command("dunstctl", "close-all").Run()
	}
}

var titled = regexp.MustCompile(`(?m)^(n\d+): `)

// countShown counts the notifications shown since the last call.
func (d *testDesktop) countShown() {
	var text strings.Builder
	for more := d.fake != nil; more; {
		select {
		case n := <-d.fake.Shown:
			text.WriteString(n.Title + "\n" + n.Body + "\n")
		default:
			more = false
		}
	}
	if content, err := os.ReadFile(d.dir + "/shown"); err == nil {
		whole := content[:strings.LastIndexByte(string(content), '\n')+1]
		text.Write(whole[d.read:])
		d.read = len(whole)
	}
	for _, m := range titled.FindAllStringSubmatch(text.String(), -1) {
		d.shown[m[1]]++
	}
}

func (d *testDesktop) isServerOnBus() bool {
	var owned bool
	err := d.bus.BusObject().Call("org.freedesktop.DBus.NameHasOwner", 0, "org.freedesktop.Notifications").Store(&owned)
	return err == nil && owned
}

func (d *testDesktop) waitNoServer() {
	testbed.Poll(d.t, "no server on the bus", func() bool { return !d.isServerOnBus() })
}

// endProcess signals a process, if there is one, and waits for its exit.
func endProcess(c **exec.Cmd, signal syscall.Signal) {
	if *c != nil {
		_ = (*c).Process.Signal(signal)
		_ = (*c).Wait()
		*c = nil
	}
}
