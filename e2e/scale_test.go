//go:build e2e && scale

package e2e

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed"
)

// TestScale_TenHosts measures corralctl with ten hosts of 200 sessions each, and replaces the
// section of docs/COMPARISON.md about them. The hosts are the accounts of ten users, each with a
// user manager and a corrald, on one machine, which another one reaches by a real sshd: they share
// the processors, so list is compared with what ssh and the bridge need if they run at the same
// time.
func TestScale_TenHosts(t *testing.T) {
	const hosts, sessions = 10, 200
	raisePseudoterminals(t, 4*hosts*sessions)
	desks := newHosts(t, host{name: "laptop"}, host{name: "farm"})
	laptop, farm := desks[0], desks[1]
	farm.Run("sh", "-ec", "echo MaxStartups 100 >/etc/ssh/sshd_config.d/many.conf; systemctl restart ssh")
	var names []string
	configured := "[Corral]\nHosts="
	for i := range hosts {
		name := fmt.Sprintf("h%d", i)
		user := farm.User("u" + strconv.Itoa(i))
		farm.Run("sh", "-ec", `d=$(getent passwd $0 | cut -d: -f6); install -d -m 700 -o $0 $d/.ssh
install -m 600 -o $0 ~ann/.ssh/authorized_keys $d/.ssh/`, user)
		configured += name + "=" + user + "@farm "
		names = append(names, name)
	}
	laptop.do("sh", "-ec", `mkdir -p ~/.config/corral; printf '%s\n' "$0" >~/.config/corral/corral.conf`, configured)
	all := strings.Join(names, ",")
	laptop.do("sh", "-ec", `IFS=,; for h in $0; do corralctl -H $h list >/dev/null & done; wait`, all)
	farm.Run("sh", "-ec", fmt.Sprintf(`for u in $(seq 0 %d); do runuser -u u$u -- env -C / XDG_RUNTIME_DIR=/run/user/$(id -u u$u) \
	DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/$(id -u u$u)/bus \
	sh -c 'for i in $(seq %d); do corralctl run -q --id s$i -- sleep infinity; done' & done; wait`, hosts-1, sessions))
	count := laptop.do("corralctl", "-H", all, "list", "--no-legend", "--state=running", "--columns=id")
	require.Len(t, strings.Split(count, "\n"), hosts*sessions)

	const bridge = `systemd-stdio-bridge --bus-path=unix:path=\$XDG_RUNTIME_DIR/bus </dev/null 2>/dev/null || :`
	floor := laptop.median(`for h in ` + strings.Join(names, " ") + `; do ssh u${h#h}@farm "` + bridge + `" & done; wait`)
	one := laptop.median(`ssh u0@farm "` + bridge + `"`)
	list := laptop.median("corralctl -H " + all + " list >/dev/null")
	cpu := laptop.topCPU("corralctl -H "+all+" top", 30*time.Second)
	report(t, fmt.Sprintf(`| what | median | beside |
|---|---:|---|
| `+"`corralctl list`"+` of %d sessions on %d hosts, ms | %d | %.2f times ssh and the bridge to %d hosts at the same time (%d ms), %.2f times those to one host alone (%d ms) |
| `+"`corralctl top`"+` of them, percent of a processor | %.2f | |
`, hosts*sessions, hosts, list.Milliseconds(), float64(list)/float64(floor), hosts, floor.Milliseconds(),
		float64(list)/float64(one), one.Milliseconds(), cpu))
}

// raisePseudoterminals raises the kernel's limit during the test.
func raisePseudoterminals(t *testing.T, atLeast int) {
	const path = "/proc/sys/kernel/pty/max"
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	if n, _ := strconv.Atoi(strings.TrimSpace(string(before))); n < atLeast {
		require.NoError(t, os.WriteFile(path, []byte(strconv.Itoa(atLeast)), 0o644))
		t.Cleanup(func() { _ = os.WriteFile(path, before, 0o644) })
	}
}

// median returns the median of how long a command of a shell takes.
func (d *desk) median(script string) time.Duration {
	d.t.Helper()
	var took []time.Duration
	for range 15 {
		began := time.Now()
		d.do("sh", "-ec", script)
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// topCPU returns how much of a processor top and its connections use, in percent.
func (d *desk) topCPU(command string, during time.Duration) float64 {
	d.t.Helper()
	d.do("tmux", "-f", "/dev/null", "new-session", "-d", "-x", "120", "-y", "40", "exec "+command)
	testbed.Poll(d.t, "top shows sessions", func() bool {
		return strings.Contains(d.do("tmux", "capture-pane", "-p"), "h0:s1")
	})
	ticks := func() (sum int) {
		out := d.do("sh", "-c", `top=$(tmux list-panes -F '#{pane_pid}'); cat /proc/$top/stat; cat $(ls -d /proc/[0-9]*/stat) 2>/dev/null | awk -v p=$top '$4 == p'`)
		for line := range strings.Lines(out) {
			fields := strings.Fields(line[strings.LastIndex(line, ")")+1:])
			for _, field := range fields[11:13] {
				n, _ := strconv.Atoi(field)
				sum += n
			}
		}
		return sum
	}
	<-time.After(5 * time.Second)
	before := ticks()
	<-time.After(during)
	used := ticks() - before
	d.do("tmux", "kill-server")
	return float64(used) / during.Seconds() // a tick is a hundredth of a second
}

// report replaces the section of docs/COMPARISON.md about several hosts.
func report(t *testing.T, table string) {
	const path = "../docs/COMPARISON.md"
	const begin, end = "<!-- measured: hosts -->\n", "<!-- end of measured -->"
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(page), begin)
	require.True(t, ok)
	_, after, _ := strings.Cut(rest, end)
	measured := "Measured on " + time.Now().Format(time.DateOnly) + ", on the same machine.\n\n" + table
	text := before + begin + measured + end + after
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	t.Log(table)
}
