package main

import (
	"errors"
	"path/filepath"
	"time"

	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/internal/shimwire"
)

// exitRecord is where the agent's exit will be recorded: in the state directory, and in the
// session's runtime directory. The daemon reads the record in the state directory, or the other one
// if the state directory could not be written to (disk full, or mounted read-only). Both files are
// prepared before the agent starts.
type exitRecord struct {
	dirs     [2]string
	prepared [2]*exitstatus.Prepared // nil if it could not be prepared, or was used
}

// prepareExitRecord prepares the record in at least one of the directories.
func prepareExitRecord(spec *shimwire.Spec) (exitRecord, error) {
	r := exitRecord{dirs: [2]string{spec.StateDir, filepath.Dir(spec.Socket)}}
	var all [2]error
	for i, dir := range r.dirs {
		r.prepared[i], all[i] = exitstatus.Prepare(dir)
	}
	if all[0] != nil && all[1] != nil {
		return r, errors.Join(all[:]...)
	}
	return r, nil
}

// write writes the record to the directories, durably to at least one of them. The daemon may read
// it before it is durable: it makes durable what it publishes.
func (r *exitRecord) write(status exitstatus.Status) error {
	var all [2]error
	for i, dir := range r.dirs {
		if r.prepared[i] == nil {
			r.prepared[i], all[i] = exitstatus.Prepare(dir)
		}
		if all[i] != nil {
			continue
		}
		if all[i] = r.prepared[i].Write(status); all[i] != nil {
			r.prepared[i].Abort()
		}
	}
	for i, p := range r.prepared {
		if all[i] == nil {
			all[i] = p.Sync()
		}
		r.prepared[i] = nil
	}
	if all[0] == nil || all[1] == nil {
		return nil
	}
	return errors.Join(all[:]...)
}

// Intervals, which double, at which the shim retries to write a record that could not be written.
const (
	firstRetry = 250 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// writeRecord writes the record, however long it takes, because only the shim knows how the agent
// has ended. The pane shows what it waits for.
func (s *shim) writeRecord(status exitstatus.Status) {
	err := s.exitRecord.write(status)
	if err == nil {
		return
	}
	s.drainPane()
	s.pane.release()
	printError("the command has ended, and its exit status cannot be written: " + err.Error() + "; retrying")
	for wait := firstRetry; err != nil; wait = min(2*wait, lastRetry) {
		<-time.After(wait)
		err = s.exitRecord.write(status)
	}
}
