package supervisor

import (
	"slices"

	"github.com/corrald/corral/internal/sshagent"
)

// ours are the names of files that are beside the sessions' runtime directories. They would do for ids.
var ours = []string{"login", "tmux.conf", sshagent.Name}

func isOurs(id string) bool { return slices.Contains(ours, id) }
