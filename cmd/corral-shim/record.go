package main

import (
	"errors"
	"path/filepath"
	"time"

	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/internal/shimwire"
)

// record is where the end of the run will be written down: in the state directory, or, where that
// takes no more writes by then (its disk is full, or was made read-only), in the session's runtime
// directory, where the daemon looks too. Both are made ready before the agent starts.
type record struct {
	dirs    [2]string
	pending [2]*exitstatus.Pending // nil where it could not be made ready, or was used up
}

// prepareRecord makes ready for one of the places at least.
func prepareRecord(spec *shimwire.Spec) (record, error) {
	r := record{dirs: [2]string{spec.StateDir, filepath.Dir(spec.Socket)}}
	var all [2]error
	for i, dir := range r.dirs {
		r.pending[i], all[i] = exitstatus.Prepare(dir)
	}
	if all[0] != nil && all[1] != nil {
		return r, errors.Join(all[:]...)
	}
	return r, nil
}

// write writes the record where it can be written.
func (r *record) write(status exitstatus.Status) error {
	var all [2]error
	for i, dir := range r.dirs {
		if r.pending[i] == nil {
			r.pending[i], all[i] = exitstatus.Prepare(dir)
		}
		if all[i] == nil {
			all[i] = r.pending[i].Write(status)
			r.pending[i] = nil
		}
		if all[i] == nil {
			r.giveUpRest()
			return nil
		}
	}
	return errors.Join(all[:]...)
}

// giveUpRest takes away what was made ready and is not needed.
func (r *record) giveUpRest() {
	for _, p := range r.pending {
		if p != nil {
			p.Abort()
		}
	}
}

// The shim tries again to write a record that can be written nowhere: soon, then less and less
// often.
const (
	firstRetry = 250 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// insist writes the record, however long it takes: nobody else knows how the agent has ended. Who
// looks at the pane sees what it waits for.
func (s *shim) insist(status exitstatus.Status) {
	err := s.record.write(status)
	if err == nil {
		return
	}
	s.showRest()
	s.pane.release()
	complain("the command has ended, and its exit status cannot be written: " + err.Error() + "; retrying")
	for wait := firstRetry; err != nil; wait = min(2*wait, lastRetry) {
		<-time.After(wait)
		err = s.record.write(status)
	}
}
