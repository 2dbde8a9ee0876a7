//go:build e2e

package e2e

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed/machine"
)

// TestInstall_PathWithSpaces installs below a path with spaces, such as "/home/Ann Bee", and checks
// that everything runs from there and that uninstalling removes everything.
func TestInstall_PathWithSpaces(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a place")
	where := []string{"DESTDIR=" + dir, "PREFIX=/opt/Ann Bee", "UNITDIR=/usr/lib/systemd/user"}
	files := func() string {
		out, err := exec.Command("find", dir, "-type", "f").CombinedOutput()
		require.NoError(t, err)
		return string(out)
	}
	assert.Empty(t, makeIn(t, append(where, "install-files")...))

	m := machine.Boot(t, machine.Options{Root: "/"})
	m.Install(dir)
	d := &desk{m, t, m.User("ann")}
	d.do("systemctl", "--user", "daemon-reload")
	d.do("systemctl", "--user", "start", "corrald")
	corralctl := "/opt/Ann Bee/bin/corralctl"
	d.do(corralctl, "run", "--id", "shop", "--", "sleep", "infinity")
	d.do("systemctl", "--user", "start", "corral@shop")
	assert.Contains(t, d.do(corralctl, "doctor"), "/opt/Ann Bee/libexec/corral/corral-shim")

	assert.Empty(t, makeIn(t, append(where, "uninstall")...))
	assert.Empty(t, files())
}

// TestInstallUser_InstallsAndUninstalls checks that make install-user puts everything where the
// user's systemd, bus and shell search for it, even if only a start-up file of the shell has moved
// the XDG directories, and that make uninstall-user removes everything.
func TestInstallUser_InstallsAndUninstalls(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	copied := exec.Command("sh", "-c", `mkdir -p "$0/srv/corral" && cd .. && { git ls-files -coz --exclude-standard; find build -type f -print0; } | tar -c --null -T - | tar -x -C "$0/srv/corral"`, dir)
	out, err := copied.CombinedOutput()
	require.NoError(t, err, "%s", out)
	m := machine.Boot(t, machine.Options{Root: "/"})
	m.Install(dir)
	d := &desk{m, t, m.User("ann")}
	made := func(target string) string {
		return d.do("sh", "-c",
			`XDG_DATA_HOME="$HOME/my data" make -C /srv/corral --no-print-directory BUILD=build -o build -o needs-run `+target)
	}
	files := func() string { return d.do("sh", "-c", `find ~ -type f -o -type l | grep orral || :`) }
	require.Empty(t, files())

	assert.Contains(t, made("install-user"), "Installed into")
	assert.Equal(t, "active", d.do("systemctl", "--user", "is-active", "corrald"))
	assert.Contains(t, files(), "/my data/bash-completion/completions/corralctl")
	d.do("systemctl", "--user", "stop", "corrald")
	d.do("sh", "-c", `printf '[Agent]\nCommand=grep -c corralctl %%P/hooks/claude.json\n' >mine.agent && install -D mine.agent .config/corral/agents/mine.agent && rm mine.agent`)
	assert.Equal(t, "0", d.do("sh", "-c", "~/.local/bin/corralctl run -q --id mine --wait mine; echo $?"),
		"the bus starts it, and agents get what is for them")
	d.do("sh", "-c", "~/.local/bin/corralctl rm mine; rm -r ~/.config/corral")

	assert.Contains(t, made("uninstall-user"), "Stopped.")
	d.do("sh", "-c", "rm -r ~/.local/state/corral")
	assert.Empty(t, files())
}
