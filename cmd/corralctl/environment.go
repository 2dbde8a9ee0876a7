package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/environment"
	"github.com/corrald/corral/internal/program"
	"github.com/corrald/corral/internal/sshagent"
)

// callerEnvironment returns the variables of the caller that are passed to a session's run: PATH
// with the directories that the user's shell has added, the agents' keys and settings, proxies,
// DISPLAY, LANG. The user manager has none of them if it was started at boot. Variables that are
// not valid UTF-8 cannot be sent and are left out.
func callerEnvironment(environ []string) []string {
	return slices.DeleteFunc(environment.CallerVariables(environ), func(entry string) bool { return !isSendable(entry) })
}

// updateSSHAgentLink lets agents reach the ssh-agent of this login, if it has one. Errors are
// ignored, because nothing else depends on it.
func updateSSHAgentLink() {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		_ = sshagent.UpdateLink(filepath.Join(dir, "corral"), os.Getenv("SSH_AUTH_SOCK"))
	}
}

// environmentValue is the JSON of why --environment.
type environmentValue struct {
	Path      string
	Variables []dbusapi.Variable
	Missing   []dbusapi.Variable
}

// whyEnvironment shows which source set each variable of the session's last run. It shows no values
// but that of PATH: the others may be secrets and are not stored anywhere.
func (c *ctl) whyEnvironment(ctx context.Context, id string) error {
	has, misses, path, err := c.client.Variables(ctx, id)
	if err != nil {
		return err
	}
	if c.wantsJSON() {
		return c.printJSON(environmentValue{path, has, misses})
	}
	t := table{columns: []column{{title: "VARIABLE"}, {title: "SOURCE"},
		{title: "VALUE", minWidth: 20, cut: wording.Ellipsize}}}
	for _, v := range has {
		row := []cell{{text: v.Name}, {text: v.Source}, {}}
		if v.Name == "PATH" {
			row[2].text = path
		}
		t.rows = append(t.rows, row)
	}
	for _, v := range misses {
		t.rows = append(t.rows,
			[]cell{{v.Name, wording.Dim}, {v.Source, wording.Dim}, {"not set; an earlier run had it", wording.Dim}})
	}
	c.printTable(t)
	return nil
}

// addSearchPath adds to the error of a session that could not be started the PATH of the run, if
// the command is not there.
func (c *ctl) addSearchPath(f *failure, id string) {
	s := c.inspect(id)
	if s.Result != word.StartFailed || len(s.Command) == 0 || strings.Contains(s.Command[0], "/") || c.isOnHost(id) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), queryTimeout)
	defer cancel()
	_, _, path, err := c.client.Variables(ctx, id)
	if err != nil {
		return
	}
	var missing *program.Error
	_, err = program.Find(s.Command[0], []string{"PATH=" + path}, "")
	if errors.As(err, &missing) && missing.Code == program.NotFound {
		f.message = strings.Replace(f.message, "not found", "not found in PATH="+path, 1)
		f.hint = "corralctl why --environment " + id
	}
}
