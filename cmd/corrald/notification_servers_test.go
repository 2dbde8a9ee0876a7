package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed"
)

const notificationServer = "org.freedesktop.Notifications"

// waitNotificationServer waits until a notification server is on the bus.
func (d *corrald) waitNotificationServer(t *testing.T) {
	t.Helper()
	testbed.Poll(t, "a server on the bus", func() bool {
		var owned bool
		err := d.bus.BusObject().Call("org.freedesktop.DBus.NameHasOwner", 0, notificationServer).Store(&owned)
		return err == nil && owned
	})
}

// startMako starts a Wayland compositor without a screen and mako on it, until the test ends. As on
// a desktop, the user manager has their environment.
func (d *corrald) startMako(t *testing.T) {
	t.Helper()
	d.write("sway.conf", "output HEADLESS-1 resolution 640x360\noutput * bg #335577 solid_color\nxwayland disable\n")
	sway := exec.Command("sway", "--config", filepath.Join(d.dir, "sway.conf"))
	sway.Env = append(os.Environ(), "WLR_BACKENDS=headless", "WLR_LIBINPUT_NO_DEVICES=1", "WLR_RENDERER=pixman")
	t.Cleanup(func() { stopProcess(sway) })
	require.NoError(t, sway.Start())
	var sockets []string
	testbed.Poll(t, "a display", func() bool {
		sockets, _ = filepath.Glob(filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "wayland-?"))
		return len(sockets) == 1
	})
	t.Setenv("WAYLAND_DISPLAY", filepath.Base(sockets[0]))
	t.Setenv("SWAYSOCK", filepath.Join(os.Getenv("XDG_RUNTIME_DIR"),
		fmt.Sprintf("sway-ipc.%d.%d.sock", os.Getuid(), sway.Process.Pid)))
	testbed.Systemctl(t, "import-environment", "WAYLAND_DISPLAY")
	t.Cleanup(func() { _ = exec.Command("systemctl", "--user", "unset-environment", "WAYLAND_DISPLAY").Run() })
	d.write("makorc", "font=DejaVu Sans 10\nwidth=340\nheight=200\n")
	mako := exec.Command("mako", "--config", filepath.Join(d.dir, "makorc"))
	t.Cleanup(func() { stopProcess(mako) })
	require.NoError(t, mako.Start())
	d.waitNotificationServer(t)
}

// makoNotification is a notification that mako shows.
type makoNotification struct {
	title, body string
	actions     map[string]string
}

// makoShows returns the notifications that mako shows, by title.
func makoShows(t *testing.T) map[string]makoNotification {
	t.Helper()
	out, err := exec.Command("makoctl", "list").Output()
	require.NoError(t, err)
	var list struct {
		Data [][]map[string]struct {
			Data any `json:"data"`
		} `json:"data"`
	}
	require.NoError(t, json.Unmarshal(out, &list), "%s", out)
	all := map[string]makoNotification{}
	for _, fields := range list.Data[0] {
		n := makoNotification{actions: map[string]string{}}
		n.title, _ = fields["summary"].Data.(string)
		n.body, _ = fields["body"].Data.(string)
		actions, _ := fields["actions"].Data.(map[string]any)
		for key, label := range actions {
			n.actions[key], _ = label.(string)
		}
		all[n.title] = n
	}
	return all
}

// TestMako checks that mako, a real notification server on a Wayland compositor, shows and closes
// notifications, and that a click there opens a real terminal.
func TestMako(t *testing.T) {
	d := startDaemon(t, "Terminal=foot")
	d.startMako(t)
	s := d.run(t, "shop", "exit 3")
	testbed.Poll(t, "the notification is shown", func() bool { return len(makoShows(t)) == 1 })
	n := makoShows(t)["shop: failed, exit 3"]
	assert.Equal(t, "command exited with code 3\n~, after less than 1s", n.body)
	assert.Equal(t, map[string]string{"default": "Open", "restart": "Restart", "log": "Log"},
		n.actions, "each action once")
	asks := d.run(t, "asks", reportCommand("waiting", "Reason", "permission", "Message",
		"May I <remove> /tmp/x & y?")+"; exec sleep 1000")
	testbed.Poll(t, "both are shown", func() bool { return len(makoShows(t)) == 2 })
	assert.Contains(t, makoShows(t)["asks: asks for permission"].body, "May I &lt;remove&gt; /tmp/x &amp; y?")
	d.screenshot(t, "grim", "-")

	require.NoError(t, exec.Command("makoctl", "invoke", "default").Run()) // of the last notification
	tmux := func(args ...string) string {
		out, _ := exec.Command("tmux", append([]string{"-S", filepath.Join(d.runtimeDir("asks"), "tmux")}, args...)...).
			Output()
		return strings.TrimSpace(string(out))
	}
	testbed.Poll(t, "a terminal is attached", func() bool {
		return tmux("list-clients", "-F", "#{client_termname}") == "foot"
	})
	d.screenshot(t, "grim", "-")
	asks.wait("acknowledged", func(p properties) bool { return p.isTrue("AttentionAcknowledged") })
	testbed.Poll(t, "the notification is closed", func() bool { return len(makoShows(t)) == 1 })
	require.NoError(t, exec.Command("makoctl", "invoke", "log").Run())
	s.wait("acknowledged", func(p properties) bool { return p.text("Attention") == "" })
	testbed.Poll(t, "the window of a short log stays open", func() bool {
		unit, _, _ := strings.Cut(testbed.Systemctl(t, "list-units", "--plain", "--no-legend", "corral-window-shop-*"), " ")
		return unit != "" && programsOf(t, unit) == "foot sh"
	})
	testbed.Poll(t, "its window has a title", func() bool {
		tree, err := exec.Command("swaymsg", "-r", "-t", "get_tree").Output()
		require.NoError(t, err)
		return strings.Contains(string(tree), `"name": "shop: log"`)
	})
	d.screenshot(t, "grim", "-")
	testbed.Systemctl(t, "stop", "corral-window-shop-*")
	testbed.Poll(t, "nothing is shown", func() bool { return len(makoShows(t)) == 0 })
	asks.must("Stop", uint64(0))
	testbed.Poll(t, "the window stays open with a prompt", func() bool {
		unit, _, _ := strings.Cut(testbed.Systemctl(t, "list-units", "--plain", "--no-legend", "corral-window-asks-*"), " ")
		return unit != "" && programsOf(t, unit) == "foot corralctl"
	})
	testbed.Systemctl(t, "stop", "corral-window-asks-*")
	testbed.Poll(t, "no window is left", func() bool {
		return testbed.Systemctl(t, "list-units", "--all", "--plain", "--no-legend", "corral-window-*") == ""
	})
}

// programsOf returns the names of the processes of a unit.
func programsOf(t *testing.T, unit string) string {
	t.Helper()
	group := testbed.Systemctl(t, "show", "--property=ControlGroup", "--value", unit)
	pids, _ := os.ReadFile(filepath.Join("/sys/fs/cgroup", group, "cgroup.procs"))
	var names []string
	for pid := range strings.FieldsSeq(string(pids)) {
		name, _ := os.ReadFile(filepath.Join("/proc", pid, "comm"))
		names = append(names, strings.TrimSpace(string(name)))
	}
	return strings.Join(names, " ")
}

// screenshot runs a program that prints a screenshot, and saves it for people in the directory
// CORRAL_PICTURES, if that is set.
func (d *corrald) screenshot(t *testing.T, command ...string) {
	t.Helper()
	dir := os.Getenv("CORRAL_PICTURES")
	if dir == "" {
		return
	}
	out, err := exec.Command(command[0], command[1:]...).Output()
	require.NoError(t, err)
	file, err := os.CreateTemp(dir, t.Name()+"-*.png")
	require.NoError(t, err)
	_, err = file.Write(out)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	t.Log(file.Name())
}

// TestNotification_WorksWithDbusmock checks another implementation of the notification
// specification, that of python3-dbusmock, which uses another D-Bus binding.
func TestNotification_WorksWithDbusmock(t *testing.T) {
	d := startDaemon(t)
	calls := filepath.Join(d.dir, "calls")
	log, err := os.Create(calls)
	require.NoError(t, err)
	mock := exec.Command("/usr/bin/python3", "-u", "-m", "dbusmock", "--template", "notification_daemon", "--parameters",
		`{"capabilities": "body actions"}`)
	mock.Stdout, mock.Stderr = log, log
	t.Cleanup(func() { stopProcess(mock); _ = log.Close() })
	require.NoError(t, mock.Start())
	d.waitNotificationServer(t)
	logged := func(text string) {
		t.Helper()
		testbed.WaitFile(t, calls, func(content []byte) bool { return strings.Contains(string(content), text) })
	}
	s := d.run(t, "shop", "exit 3")
	logged(`Notify "Corral" 0 "io.github.corrald.Corral" "shop: failed, exit 3" "command exited with code 3`)
	emit := func(name, signature string, args ...any) {
		t.Helper()
		variants := []dbus.Variant{}
		for _, a := range args {
			variants = append(variants, dbus.MakeVariant(a))
		}
		err := d.bus.Object(notificationServer, "/org/freedesktop/Notifications").
			Call("org.freedesktop.DBus.Mock.EmitSignal", 0, notificationServer, name, signature, variants).Err
		require.NoError(t, err)
	}
	emit("ActionInvoked", "us", uint32(1), "restart")
	s.wait("restarted", func(p properties) bool { return p.number("NRuns") == 2 && p.text("State") == "failed" })
	s.must("Acknowledge")
	logged("CloseNotification ")
}
