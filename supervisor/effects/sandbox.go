package effects

import (
	"path"
	"path/filepath"
	"slices"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/environment"
	"github.com/corrald/corral/internal/sandbox"
	"github.com/corrald/corral/supervisor"
)

// confine is System.Confine. The request is completed by what the sandbox profile permits.
func (x *Executor) confine(
	c *supervisor.Confinement, request sandbox.Request, variables []environment.Variable,
) (command sandbox.Command, _ []environment.Variable, err error) {
	if c == nil {
		return command, variables, nil
	}
	if c.Err != nil {
		return command, nil, c.Err
	}
	profile := c.Profile
	variables = slices.DeleteFunc(slices.Clone(variables), func(v environment.Variable) bool {
		return slices.ContainsFunc(profile.Unset, func(pattern string) bool {
			matches, _ := path.Match(pattern, v.Name)
			return matches
		})
	})
	variables = append(variables, environment.Variable{
		Name: sandboxVariable, Value: profile.Name, Source: environment.Corral,
	})
	if len(profile.Wrapper) > 0 {
		command.Args, err = config.Expand(profile.Wrapper, c.Values)
		return command, variables, err
	}
	request.Network, request.Home, request.Runtime = profile.Network == config.NetworkOpen, c.Values.Home, c.RuntimeDir
	request.Visible = append(request.Visible, filepath.Dir(x.client), c.Values.Share)
	request.PrivateDir = filepath.Join(c.CacheDir, profile.Name)
	entries := environment.Entries(variables)
	if home, is := environment.Lookup(entries, "HOME"); is && filepath.IsAbs(home) {
		request.Visible = append(request.Visible, home)
	}
	for _, list := range []struct {
		to       *[]string
		patterns []string
	}{
		{&request.Hide, profile.Hide},
		{&request.Private, profile.Private},
		{&request.ReadOnly, slices.Concat(profile.ReadOnly, c.ReadOnly)},
		{&request.Writable, slices.Concat(profile.Writable, c.Writable)},
	} {
		if *list.to, err = config.ExpandPatterns(list.patterns, c.Values, entries); err != nil {
			return command, nil, err
		}
	}
	request.Hide = append(request.Hide, config.QuotePattern(c.StateDir))
	command, err = sandbox.NewCommand(request)
	return command, variables, err
}

// sandboxVariable is set for an agent in a sandbox, to the name of its profile.
const sandboxVariable = "CORRAL_SANDBOX"
