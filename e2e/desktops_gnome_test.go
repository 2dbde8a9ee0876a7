//go:build e2e && desktops

package e2e

import (
	"fmt"
	"strings"

	"github.com/stretchr/testify/require"
)

// gnome is GNOME Shell without a display: its compositor draws into memory.
var gnome = desktop{
	name: "GNOME",
	packages: []string{
		"gnome-shell", "gnome-session", "ptyxis", "libgl1-mesa-dri", "adwaita-icon-theme", "librsvg2-common",
		"libglib2.0-bin", "polkitd", "fonts-cantarell", "fonts-dejavu-core",
	},
	display: mutter{},
	login: func(s *seat) {
		s.t.Helper()
		s.dropIn("org.gnome.Shell@wayland.service", `[Service]
ExecStart=
ExecStart=/usr/bin/gnome-shell --headless --unsafe-mode --wayland --no-x11 --virtual-monitor 1024x768
`)
		s.session([]string{
			"XDG_SESSION_TYPE=wayland", "XDG_SESSION_DESKTOP=gnome", "XDG_CURRENT_DESKTOP=GNOME", "DESKTOP_SESSION=gnome",
			"GNOME_SHELL_SESSION_MODE=user",
		}, "/usr/bin/gnome-session")
		// Once it is up, GNOME Shell shows the overview and, as no GNOME display manager runs, a
		// notification that the screen cannot be locked. That would stay until a person moves the
		// pointer.
		s.await("GNOME Shell", func() bool {
			out, _ := s.try(mutter{}.call(`Main.messageTray.getSources().length === 0 ? "starting" : (Main.messageTray.getSources().forEach(source => source.destroy()), Main.overview.hide(), "started")`)...)
			return strings.Contains(out, "started")
		})
		s.awaitServer()
		// Clients learn of a new keyboard some time after it was made, and miss what was typed until
		// then.
		for _, kind := range []string{"POINTER", "KEYBOARD"} {
			mutter{}.eval(s, mutter{}.device(kind)+"1")
		}
	},
	disturb: func(s *seat, may bool) {
		s.t.Helper()
		s.do("gsettings", "set", "org.gnome.desktop.notifications", "show-banners", fmt.Sprint(may))
	},
}

// mutter is the compositor of GNOME Shell. With --unsafe-mode the shell takes pictures and
// evaluates JavaScript for every client on the bus. The JavaScript can create virtual input
// devices.
type mutter struct{}

// call returns the command that has GNOME Shell evaluate JavaScript.
func (mutter) call(script string) []string {
	return []string{
		"gdbus", "call", "--session", "--dest", "org.gnome.Shell", "--object-path", "/org/gnome/Shell",
		"--method", "org.gnome.Shell.Eval", script,
	}
}

// eval has GNOME Shell evaluate JavaScript. The test fails if that throws.
func (m mutter) eval(s *seat, script string) {
	s.t.Helper()
	require.Contains(s.t, s.do(m.call(script)...), "(true,", "%s", script)
}

func (mutter) picture(s *seat) []byte {
	s.t.Helper()
	file := "/run/user/" + s.do("id", "-u") + "/screen.png"
	s.do("gdbus", "call", "--session", "--dest", "org.gnome.Shell.Screenshot",
		"--object-path", "/org/gnome/Shell/Screenshot",
		"--method", "org.gnome.Shell.Screenshot.Screenshot", "false", "false", file)
	return s.output("cat", file)
}

// device is JavaScript that returns a virtual input device of a kind, which is made once.
func (mutter) device(kind string) string {
	return fmt.Sprintf(`const C = imports.gi.Clutter; global.devices ??= {};
		const device = global.devices.%[1]s ??= C.get_default_backend().get_default_seat().create_virtual_device(C.InputDeviceType.%[1]s_DEVICE);
		`, kind)
}

func (m mutter) point(s *seat, x, y int) {
	s.t.Helper()
	m.eval(s, fmt.Sprintf("%s device.notify_absolute_motion(C.CURRENT_TIME, %d, %d); 1", m.device("POINTER"), x, y))
}

func (m mutter) click(s *seat) {
	s.t.Helper()
	for _, state := range []string{"PRESSED", "RELEASED"} {
		m.eval(s, fmt.Sprintf("%s device.notify_button(C.CURRENT_TIME, C.BUTTON_PRIMARY, C.ButtonState.%s); 1",
			m.device("POINTER"), state))
	}
}

func (m mutter) press(s *seat, text string) {
	s.t.Helper()
	const enter = 0xff0d // the keyval of Return; that of an ASCII character is its code
	for _, key := range append([]rune(text), enter) {
		m.eval(s, fmt.Sprintf(`%s device.notify_keyval(C.CURRENT_TIME, %d, C.KeyState.PRESSED); device.notify_keyval(C.CURRENT_TIME, %[2]d, C.KeyState.RELEASED); 1`,
			m.device("KEYBOARD"), key))
	}
}
