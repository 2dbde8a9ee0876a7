package corral_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestNeeds_UsesSudoOnlyWhenAPersonAgrees runs scripts/needs.sh with its own apt-get, sudo and id,
// which record how they are called.
func TestNeeds_UsesSudoOnlyWhenAPersonAgrees(t *testing.T) {
	const byHand = "Needed here, please run: sudo apt-get install -y --no-install-recommends tmux\n"
	const question = "Needed and not here: tmux. Install with sudo apt-get? [Y/n] "
	const bySudo = "Installing with sudo what is needed and not here: tmux\n"
	installed := []string{
		"sudo env DEBIAN_FRONTEND=noninteractive apt-get install", "apt-get install -y --no-install-recommends tmux",
	}
	for _, row := range []struct {
		name, uid, answer, ci string
		status                int
		output                string
		runs                  []string
	}{
		{"root is shown what is installed", "0", "", "", 0, "Installing what is needed and not here: tmux\n", installed[1:]},
		{"a user on a terminal is asked, and yes is the default", "1000", "\n", "", 0, question, installed},
		{"a user on a terminal refuses", "1000", "n\n", "", 1, byHand, nil},
		{"a user without a terminal gets the command", "1000", "", "", 1, byHand, nil},
		{"a user's CI agrees beforehand", "1000", "", "true", 0, bySudo, installed},
	} {
		t.Run(row.name, func(t *testing.T) {
			bin := t.TempDir()
			calls := filepath.Join(bin, "calls")
			for name, script := range map[string]string{
				"id":      "echo " + row.uid,
				"sudo":    `echo "sudo $*" >>` + calls + `; case $1 in -v) ;; -n) shift; "$@" ;; *) "$@" ;; esac`,
				"apt-get": `echo "apt-get $*" >>` + calls + `; echo '#!/bin/sh' >` + bin + `/tmux; /bin/chmod 755 ` + bin + `/tmux`,
			} {
				require.NoError(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
			}
			for _, name := range []string{"env", "bash", "true", "dirname"} {
				path, err := exec.LookPath(name)
				require.NoError(t, err)
				require.NoError(t, os.Symlink(path, filepath.Join(bin, name)))
			}
			cmd := exec.Command("scripts/needs.sh", "tmux")
			if row.answer != "" {
				script, err := exec.LookPath("script")
				require.NoError(t, err)
				cmd = exec.Command(script, "--quiet", "--return", "--echo", "never",
					"--command", "scripts/needs.sh tmux", "/dev/null")
				cmd.Stdin = strings.NewReader(row.answer)
			}
			cmd.Env = []string{"PATH=" + bin, "CI=" + row.ci, "SHELL=/bin/sh"}
			output, _ := cmd.CombinedOutput()
			assert.Equal(t, row.status, cmd.ProcessState.ExitCode(), "%s", output)
			assert.Contains(t, strings.ReplaceAll(string(output), "\r", ""), row.output)
			called, _ := os.ReadFile(calls)
			for _, call := range row.runs {
				assert.Contains(t, string(called), call)
			}
			if row.runs == nil {
				assert.Empty(t, string(called))
			}
		})
	}
}
