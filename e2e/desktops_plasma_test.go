//go:build e2e && desktops

package e2e

import (
	"strings"
)

// plasma is KDE Plasma on Wayland, whose compositor shows its screen in a window of an X server.
var plasma = desktop{
	name: "Plasma",
	packages: []string{
		"plasma-workspace", "plasma-desktop", "kwin-wayland", "konsole", "breeze", "breeze-icon-theme", "libgl1-mesa-dri",
		"xvfb", "xdotool", "fonts-dejavu-core",
	},
	display: xvfb{},
	login: func(s *seat) {
		s.t.Helper()
		xvfb{}.start(s)
		s.dropIn("plasma-kwin_wayland.service", `[Service]
ExecStart=
ExecStart=/usr/bin/kwin_wayland_wrapper --x11-display :7 --width 1024 --height 640
Environment=KWIN_COMPOSE=Q DISPLAY=:7 QT_QUICK_BACKEND=software
`)
		s.do("mkdir", "--parents", ".config")
		s.write(".config/ksplashrc", "[KSplash]\nEngine=none\nTheme=None\n")
		// A picture is read more slowly than a person reads.
		s.write(".config/plasmanotifyrc", "[Notifications]\nPopupTimeout=120000\n")
		s.session([]string{
			"XDG_SESSION_TYPE=wayland", "XDG_SESSION_DESKTOP=KDE", "XDG_CURRENT_DESKTOP=KDE", "DESKTOP_SESSION=plasma",
			"QT_QUICK_BACKEND=software",
		}, "sh", "-c", "exec /usr/lib/*/libexec/plasma-dbus-run-session-if-needed /usr/bin/startplasma-wayland")
		s.await("plasmashell", func() bool {
			names, _ := s.try("busctl", "--user", "--no-pager", "--acquired", "list")
			return strings.Contains(names, "org.kde.plasmashell ") && strings.Contains(names, "org.freedesktop.Notifications ")
		})
	},
	disturb: func(s *seat, may bool) {
		s.t.Helper()
		until := "2099,1,1,0,0,0"
		if may {
			until = ""
		}
		s.do("kwriteconfig6", "--notify", "--file", "plasmanotifyrc", "--group", "DoNotDisturb", "--key", "Until", until)
	},
}
