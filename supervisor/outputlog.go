package supervisor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/corrald/corral/internal/safefile"
	"github.com/corrald/corral/internal/shimwire"
)

// OpenLog opens the session's log for reading. The caller closes it. Errors: NoSuchSession,
// InvalidState.
func (s *Supervisor) OpenLog(id string) (*os.File, error) {
	if err := s.loop.doWith(id, noError); err != nil {
		return nil, err
	}
	dir := s.loop.records.SessionDir(id)
	f, err := safefile.Open(filepath.Join(dir, shimwire.LogName))
	if errors.Is(err, fs.ErrNotExist) { // the shim may be rotating it
		f, err = safefile.Open(filepath.Join(dir, shimwire.OlderLogName))
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, refuse(InvalidState, "session %q has no log yet", id)
	case err != nil:
		return nil, refuse(InvalidState, "cannot open the log of session %q: %v", id, err)
	}
	return f, nil
}

// lastOutput returns when the session's agent last printed something: when its log was last
// modified. It returns zero if the agent has printed nothing. Any goroutine may call it.
func (l *loop) lastOutput(id string) time.Time {
	info, err := os.Stat(filepath.Join(l.records.SessionDir(id), shimwire.LogName))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}
