package main

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"

	"github.com/corrald/corral/internal/atomicfile"
)

// presenceFileName is the name of the presence file in $XDG_RUNTIME_DIR/corral. No session's
// directory has this name, because a session id cannot start with a dot.
const presenceFileName = ".present"

// presenceFile is a file that exists while the user is present at a seat of this machine, as far as
// the login manager knows. Agents check it before they notify the user's phone: see
// CLAUDE_CLIENT_PRESENCE_FILE in agents/claude.agent. Without a daemon it does not exist.
type presenceFile struct {
	path string
	log  *slog.Logger
}

// set creates or removes the file.
func (p presenceFile) set(present bool) {
	var err error
	if present {
		err = atomicfile.Write(p.path, nil, 0o600)
	} else if err = os.Remove(p.path); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		p.log.Warn("agents do not learn whether the user is present", "present", present, "err", err)
	}
}
