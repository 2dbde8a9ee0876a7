package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/environment"
	"github.com/corrald/corral/internal/sshagent"
)

// callerEnvironment returns the entries of the caller's environment that go along with a start:
// PATH with what the user's shell put into it, the agents' keys and settings, proxies, DISPLAY,
// LANG; the user manager has none of them when it was started at boot. What is no text cannot be
// sent and stays behind.
func callerEnvironment(environ []string) []string {
	return slices.DeleteFunc(environment.CallerVariables(environ), func(entry string) bool { return !isSendable(entry) })
}

// updateSSHAgentLink has the agents reach the ssh-agent of the login that this is a part of, if it has
// one. It is no reason not to go on that they do not.
func updateSSHAgentLink() {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		_ = sshagent.UpdateLink(filepath.Join(dir, "corral"), os.Getenv("SSH_AUTH_SOCK"))
	}
}

// environmentValue is what why --environment prints as JSON.
type environmentValue struct {
	Path      string
	Variables []dbusapi.Variable
	Missing   []dbusapi.Variable
}

// whyEnvironment shows where the variables of the session's last run come from. Of the values it
// shows PATH's: the others may be secrets, and are kept nowhere.
func (c *ctl) whyEnvironment(ctx context.Context, id string) error {
	has, misses, path, err := c.client.Variables(ctx, id)
	if err != nil {
		return c.cannot("explain", id, err)
	}
	if c.wantsJSON() {
		return c.printJSON(environmentValue{path, has, misses})
	}
	t := table{columns: []column{{title: "VARIABLE"}, {title: "SOURCE"}, {title: "VALUE", minWidth: 20, cut: wording.Ellipsize}}}
	for _, v := range has {
		row := []cell{{text: v.Name}, {text: v.Source}, {}}
		if v.Name == "PATH" {
			row[2].text = path
		}
		t.rows = append(t.rows, row)
	}
	for _, v := range misses {
		t.rows = append(t.rows, []cell{{v.Name, wording.Dim}, {v.Source, wording.Dim}, {"not set; an earlier run had it", wording.Dim}})
	}
	c.printTable(t)
	return nil
}

var commandNotFound = regexp.MustCompile(`^cannot start "([^"]+)": command "[^/"]+" not found$`)

// addSearchPath adds to what kept a session from starting, a command that is in no directory of its
// PATH, which PATH that was.
func (c *ctl) addSearchPath(f *failure) *failure {
	match := commandNotFound.FindStringSubmatch(f.message)
	if match == nil || c.client == nil {
		return f
	}
	ctx, cancel := context.WithTimeout(context.Background(), queryTimeout)
	defer cancel()
	if _, _, path, err := c.client.Variables(ctx, match[1]); err == nil {
		f.message += fmt.Sprintf(" in PATH=%s", path)
		f.hint = "corralctl why --environment " + match[1]
	}
	return f
}
