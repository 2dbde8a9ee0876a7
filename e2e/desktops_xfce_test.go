//go:build e2e && desktops

package e2e

import "strconv"

// xfce is XFCE with its own notification server, on an X server.
var xfce = desktop{
	name: "XFCE",
	packages: []string{
		"xfce4-session", "xfwm4", "xfce4-panel", "xfdesktop4", "xfce4-notifyd", "xfce4-terminal", "xfce4-settings", "xvfb",
		"xdotool", "x11-xserver-utils", "adwaita-icon-theme", "librsvg2-common", "fonts-dejavu-core",
	},
	display: xvfb{},
	login: func(s *seat) {
		s.t.Helper()
		xvfb{}.start(s)
		s.session([]string{"XDG_SESSION_TYPE=x11", "DISPLAY=:7"}, "/etc/X11/Xsession", "startxfce4")
		for _, class := range []string{"xfdesktop", "xfce4-panel"} {
			s.await("the windows of "+class, func() bool {
				_, status := s.try("env", "DISPLAY=:7", "xdotool", "search", "--onlyvisible", "--class", class)
				return status == 0
			})
		}
		s.awaitServer()
		// A picture is read more slowly than a person reads.
		s.do("xfconf-query", "--channel", "xfce4-notifyd", "--property", "/expire-timeout", "--create", "--type", "int",
			"--set", "120")
	},
	disturb: func(s *seat, may bool) {
		s.t.Helper()
		s.do("xfconf-query", "--channel", "xfce4-notifyd", "--property", "/do-not-disturb", "--create", "--type", "bool",
			"--set", strconv.FormatBool(!may))
	},
}
