package contrib

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed"
)

const watcher = "org.kde.StatusNotifierWatcher"

// tray is a StatusNotifierHost, like a desktop's, that displays nothing.
type tray struct{ items chan dbus.Sender }

// RegisterStatusNotifierItem implements the protocol's method.
func (h tray) RegisterStatusNotifierItem(_ string, sender dbus.Sender) *dbus.Error {
	h.items <- sender
	return nil
}

// Get returns true for the only property that a client reads before it appears: whether a host is
// registered.
func (h tray) Get(string, string) (dbus.Variant, *dbus.Error) { return dbus.MakeVariant(true), nil }

// GetAll is Get for all properties.
func (h tray) GetAll(string) (map[string]dbus.Variant, *dbus.Error) {
	return map[string]dbus.Variant{
		"IsStatusNotifierHostRegistered": dbus.MakeVariant(true), "ProtocolVersion": dbus.MakeVariant(int32(0)),
	}, nil
}

// entry is a row of a menu in the format of com.canonical.dbusmenu.
type entry struct {
	ID         int32
	Properties map[string]dbus.Variant
	Children   []dbus.Variant
}

// find returns the id of the row with this path of labels below e.
func (e entry) find(labels ...string) (int32, bool) {
	if len(labels) == 0 {
		return e.ID, true
	}
	for _, c := range e.Children {
		var child entry
		if dbus.Store([]any{c.Value()}, &child) != nil {
			continue
		}
		if label, _ := child.Properties["label"].Value().(string); label == labels[0] {
			return child.find(labels[1:]...)
		}
	}
	return 0, false
}

// TestIndicator checks that the tray icon shows when a session needs attention, and that its menu
// works.
func TestIndicator(t *testing.T) {
	p := newInstallation(t)
	x := p.command("Xvfb", "-displayfd", "1", "-screen", "0", "640x360x24", "-nolisten", "tcp")
	out, err := x.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, x.Start())
	t.Cleanup(func() {
		_ = x.Process.Signal(os.Interrupt)
		_ = x.Wait()
	})
	display, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	p.environment = append(p.environment, "DISPLAY=:"+strings.TrimSpace(display), "GDK_BACKEND=x11", "NO_AT_BRIDGE=1",
		"GSETTINGS_BACKEND=memory")

	bus := testbed.Bus(t)
	host := tray{items: make(chan dbus.Sender, 8)}
	require.NoError(t, bus.Export(host, "/StatusNotifierWatcher", watcher))
	require.NoError(t, bus.Export(host, "/StatusNotifierWatcher", "org.freedesktop.DBus.Properties"))
	_, err = bus.RequestName(watcher, dbus.NameFlagDoNotQueue)
	require.NoError(t, err)
	p.lines("corral-indicator")
	item := bus.Object(string(testbed.Receive(t, host.items, "an icon")), "/org/ayatana/NotificationItem/corral")
	property := func(name string) string {
		value, err := item.GetProperty("org.kde.StatusNotifierItem." + name)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprint(value.Value())
	}
	is := func(status, title string) {
		t.Helper()
		testbed.Poll(t, "the icon shows "+title, func() bool {
			return property("Status") == status && property("Title") == title
		})
	}
	is("NeedsAttention", "Corral: 1 failed, 1 running")

	menu := bus.Object(item.Destination(), dbus.ObjectPath(property("Menu")))
	row := func(labels ...string) (id int32) {
		t.Helper()
		testbed.Poll(t, "the menu has "+strings.Join(labels, " > "), func() bool {
			var revision uint32
			var layout entry
			err := menu.Call("com.canonical.dbusmenu.GetLayout", 0, int32(0), int32(-1), []string{}).Store(&revision, &layout)
			found := false
			if err == nil {
				id, found = layout.find(labels...)
			}
			return found
		})
		return id
	}
	click := func(labels ...string) {
		t.Helper()
		testbed.Poll(t, "a click on "+strings.Join(labels, " > "), func() bool { // the menu may just have changed
			return menu.Call("com.canonical.dbusmenu.Event", 0, row(labels...), "clicked", dbus.MakeVariant(""),
				uint32(0)).Err == nil
		})
	}
	click("cart: failed: command exited with code 3", "Mark as seen")
	is("Active", "Corral: 1 failed, 1 running")
	p.run("corralctl", "rm", "cart")
	is("Active", "Corral: 1 running")
	p.run("corralctl", "run", "-q", "--id", "done", "--", "sh", "-c",
		"corralctl report idle --reason=turn-ended; exec sleep 1000")
	is("NeedsAttention", "Corral: 1 turn ended, 1 running")
	testbed.Poll(t, "the label beside the icon", func() bool { return property("XAyatanaLabel") == "1 turn ended" })
	click("done: turn ended", "Mark as seen")
	is("Active", "Corral: 1 turn ended, 1 running")
	p.run("corralctl", "rm", "--force", "done")
	click("shop: running", "Stop")
	p.run("corralctl", "wait", "--until=stopped", "shop")
	is("Passive", "Corral")
	row("shop: stopped", "Resume")
}
