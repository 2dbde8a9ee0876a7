//go:build e2e

package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed/machine"
)

// packaged returns a directory in which root/VERSION has packages of two versions in this format.
// dist.sh checks a deb with lintian; debian/corral.lintian-overrides has the accepted findings with
// their reasons.
func packaged(t *testing.T, format string) string {
	t.Helper()
	dir := t.TempDir()
	for _, version := range []string{"1.0", "1.1"} {
		out, err := exec.Command("../scripts/dist.sh", version, filepath.Join(dir, "root", version), format).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	return dir
}

// packager is a package manager with the commands that install or upgrade from a file, remove, and
// list the files of the package.
type packager struct {
	system, format        string
	programs              []string // packages that the system needs for it
	file                  string   // format of the file name, with %s for the version
	install, remove, list []string
	purge                 []string
}

func packagers() []packager {
	arch := runtime.GOARCH
	cpu := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[arch]
	dpkg := packager{
		format: "deb", file: "corral_%s_" + arch + ".deb",
		install: []string{"dpkg", "--install"}, remove: []string{"dpkg", "--remove", "corral"},
		list: []string{"dpkg", "--listfiles", "corral"}, purge: []string{"dpkg", "--purge", "corral"},
	}
	older, newer := dpkg, dpkg
	older.system, newer.system = "bookworm", "trixie"
	// Debian also has the package managers of Fedora and Arch. Only the names of dependencies differ.
	foreign := []string{"rpm", "pacman-package-manager"}
	return []packager{older, newer, {
		system: "trixie", format: "rpm", programs: foreign, file: "corral-%s-1." + cpu + ".rpm",
		install: []string{"rpm", "--upgrade", "--nodeps"}, remove: []string{"rpm", "--erase", "corral"},
		list: []string{"rpm", "--query", "--list", "corral"},
	}, {
		system: "trixie", format: "archlinux", programs: foreign, file: "corral-%s-1-" + cpu + ".pkg.tar.zst",
		install: []string{"pacman", "-U", "--noconfirm", "-dd"}, remove: []string{"pacman", "-R", "--noconfirm", "corral"},
		list: []string{"pacman", "-Qlq", "corral"},
	}}
}

// TestPackages installs, upgrades and removes packages while agents run, which must not be
// affected.
func TestPackages(t *testing.T) {
	whole := t
	t.Parallel()
	packages := make(map[string]string)
	listed := make(map[string]string)
	for _, p := range packagers() {
		t.Run(p.format+" on "+p.system, func(t *testing.T) {
			if packages[p.format] == "" {
				packages[p.format] = packaged(whole, p.format)
			}
			m := machine.Boot(t, machine.Options{Root: machine.Debian(t, p.system, p.programs...)})
			d := &desk{m, t, m.User("ann")}
			m.Install(packages[p.format])
			run := func(command []string, more ...string) string {
				t.Helper()
				return m.Run(append(append([]string{"sh", "-c", `exec "$@" 2>&1`, "sh"}, command...), more...)...)
			}
			if p.format != "deb" {
				m.Run("ln", "-sf", "bash", "/usr/bin/sh") // as on Fedora and Arch
			}
			file := func(version string) string { return "/root/" + version + "/" + fmt.Sprintf(p.file, version) }
			run(p.install, file("1.0"))
			state, _ := d.try("systemctl", "--user", "is-enabled", "corrald")
			assert.Equal(t, "disabled", state, "who does not use it")
			d.run("agent", "--", "sleep", "1000") // D-Bus activation starts the daemon
			d.awaitEnabled()
			m.Run("sh", "-ec", "useradd --system --create-home greeter; loginctl enable-linger greeter; "+
				"until [ -S /run/user/$(id -u greeter)/bus ]; do sleep 0.05; done")
			refusal, code := (&desk{m, t, "greeter"}).try("corralctl", "list")
			assert.Equal(t, 5, code)
			assert.Contains(t, refusal, "corrald does not run for root and other system users")
			d.run("review", "--no-start", "--", "sleep", "1000")
			d.do("systemctl", "--user", "start", "corral@review")
			assert.Contains(t, d.do("corralctl", "version"), "1.0")
			listed[p.format] = run(p.list)
			before, pid := d.life("agent", "review"), d.daemon("")

			run(p.install, file("1.1"))
			d.daemon(pid)
			assert.Equal(t, before, d.life("agent", "review"), "an upgrade")
			assert.Contains(t, d.do("corralctl", "version"), "1.1")
			assert.Equal(t, "active", d.do("systemctl", "--user", "is-active", "corral@review"))
			assert.Equal(t, "enabled", d.do("systemctl", "--user", "is-enabled", "corrald"))

			agent := d.pid("agent")
			assert.Contains(t, run(p.remove), "Running agents continue")
			assert.Equal(t, "sleep", strings.TrimSpace(m.Run("cat", "/proc/"+agent+"/comm")),
				"an agent keeps running after a removal")
			state, _ = d.try("systemctl", "--user", "is-active", "corrald")
			assert.Equal(t, "inactive", state)

			run(p.install, file("1.1"))
			assert.Equal(t, "active", d.do("systemctl", "--user", "is-active", "corrald"), "at once, for who had it enabled")
			assert.Equal(t, before, d.life("agent", "review"), "and is adopted when it is installed again")
			run(p.remove)
			if p.purge != nil {
				run(p.purge)
			}
			m.Run("sh", "-c", "! find /usr /etc /var/lib/systemd -name '*corral*' | grep .")
		})
	}
	// All formats contain the same files, except for those that a distribution wants elsewhere or in
	// addition.
	for format, list := range listed {
		var files []string
		for line := range strings.Lines(list) {
			if file := strings.TrimSpace(line); strings.Contains(file, "orral") && !strings.HasSuffix(file, "/") {
				files = append(files, strings.Replace(file, "/zsh/vendor-completions/", "/zsh/site-functions/", 1))
			}
		}
		files = slices.DeleteFunc(files, func(file string) bool {
			return regexp.MustCompile(`^/usr/share/(doc/corral|lintian/.*|licenses/corral)(/LICENSE|/THIRD-PARTY-NOTICES|/copyright|/changelog.gz|/corral)?$`).MatchString(file) ||
				slices.ContainsFunc(files, func(other string) bool { return strings.HasPrefix(other, file+"/") })
		})
		slices.Sort(files)
		listed[format] = strings.Join(files, "\n")
	}
	assert.Contains(t, listed["deb"], "/usr/bin/corrald")
	for format, files := range listed {
		assert.Equal(t, listed["deb"], files, format)
	}
}
