//go:build e2e

package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestPath_AfterBoot checks that, after a boot and without a login, a session has the PATH that
// nvm, pyenv and npm set in the login shell's start-up files.
func TestPath_AfterBoot(t *testing.T) {
	d := newDesk(t, "/")
	d.do("mkdir", "-p", ".nvm/versions/bin", ".pyenv/shims", ".npm-global/bin")
	d.write(".nvm/nvm.sh", "nvm() { PATH=$HOME/.nvm/versions/bin:$PATH; }\nnvm use default\n")
	d.write(".profile", "[ -n \"$BASH_VERSION\" ] && . ~/.bashrc\nPATH=$HOME/.npm-global/bin:$PATH\n")
	d.write(".bashrc", "case $- in *i*) ;; *) return;; esac\nexport PYENV_ROOT=$HOME/.pyenv\n"+
		"PATH=$PYENV_ROOT/shims:$PATH\n. ~/.nvm/nvm.sh\n")
	for name, dir := range map[string]string{
		"bynvm": ".nvm/versions/bin", "bypyenv": ".pyenv/shims", "bynpm": ".npm-global/bin",
	} {
		d.write(dir+"/"+name, "#!/bin/sh\nexec sleep 1000\n")
		d.run(name, "--no-start", "--on-login", "start", "--", name)
	}
	d.PowerOff()
	d.Boot()
	for _, name := range []string{"bynvm", "bypyenv", "bynpm"} {
		d.until(name, "running,failed")
		assert.Equal(t, `s "running"`, d.property(name, "State"), d.result(name))
	}
}
