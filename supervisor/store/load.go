package store

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/supervisor/session"
)

// Kind tells what was found about a session's record.
type Kind int

const (
	SetAside Kind = iota // it was damaged and set aside; the one before it was taken
	Lost                 // it was damaged and set aside, and there is none before it: the session is missing
	Newer                // it was written by a newer version: it is shown, and not changed
	Edited               // somebody has edited it, and it was taken as it is; the next save makes it like any other
)

// Finding is what a person should know of a session's record.
type Finding struct {
	ID     string
	Kind   Kind
	Path   string // SetAside, Lost: of the record that was set aside; "" if it was missing
	Writer string // Newer: the version of Corral
	Err    error  // SetAside, Lost: what is wrong with the record; nil if it was set aside before
}

// String says it in one English sentence, with what to do.
func (f Finding) String() string {
	switch f.Kind {
	case SetAside:
		if f.Path == "" {
			return "its record was missing; the previous one is used"
		}
		return "its record was damaged" + because(f.Err) + "; the previous one is used: look at " + f.Path + ", then remove that file"
	case Lost:
		return "its record is damaged" + because(f.Err) + ", and there is no previous one: fix " + f.Path + " and rename it to " + RecordName +
			" while corrald is stopped, or remove its directory"
	case Newer:
		return "its record was written by a newer Corral (" + f.Writer + "): it is read-only; install that version, or remove the session"
	}
	return "its record was edited by hand and is used as it is"
}

func because(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, errChecksum):
		return " (its checksum does not match; if you have edited it, delete the line of the checksum)"
	}
	return " (" + err.Error() + ")"
}

// damagedSuffix ends the name of a record that was set aside.
const damagedSuffix = ".damaged"

// Load reads every session. A record that cannot be read is set aside under the name session.json.damaged, and the one before it is taken;
// where there is none either, the session is missing from the result, and its directory stays.
func (s *Store) Load() ([]*session.Session, []Finding, error) {
	dir := filepath.Join(s.dir, "sessions")
	names, err := s.disk.Directories(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read the sessions: %w", err)
	}
	for _, name := range names { // first: a power cut may have left a directory with both of its names
		if strings.HasPrefix(name, ".") && strings.HasSuffix(name, removedSuffix) {
			s.discard(filepath.Join(dir, name))
		}
	}
	var all []*session.Session
	var found []Finding
	for _, name := range names {
		if strings.HasPrefix(name, ".") {
			continue
		}
		rec, more := s.load(name)
		if rec != nil {
			all = append(all, rec)
		}
		found = append(found, more...)
	}
	return all, found, nil
}

func (s *Store) load(id string) (*session.Session, []Finding) {
	record := filepath.Join(s.SessionDir(id), RecordName)
	aside := record + damagedSuffix
	rec, found, err := s.read(record, id)
	if err == nil {
		if s.disk.Exists(aside) {
			found = append(found, Finding{ID: id, Kind: SetAside, Path: aside})
		}
		return rec, found
	}
	missing := errors.Is(err, fs.ErrNotExist)
	rec, found, prevErr := s.read(filepath.Join(s.SessionDir(id), previousName), id)
	if missing && errors.Is(prevErr, fs.ErrNotExist) && !s.disk.Exists(aside) {
		s.finish(id)
		return nil, nil
	}
	f := Finding{ID: id, Kind: SetAside, Path: aside, Err: err}
	if missing {
		f.Err = nil
		if !s.disk.Exists(aside) {
			f.Path = ""
		}
	} else if s.disk.Rename(record, aside) != nil {
		f.Path = record
	}
	if prevErr != nil {
		f.Kind = Lost
	}
	return rec, append(found, f)
}

// finish takes away what a creation that was cut short has left, so that the id can be used. Where a shim is about to record an exit, the record could
// not be saved, and nothing is taken away.
func (s *Store) finish(id string) {
	dir := s.SessionDir(id)
	if !s.disk.Exists(filepath.Join(dir, "."+exitstatus.FileName+".new")) {
		_ = s.disk.RemoveAll(dir)
	}
}

func (s *Store) read(path, id string) (*session.Session, []Finding, error) {
	data, err := s.disk.Read(path, maxRecord)
	if err != nil {
		return nil, nil, err
	}
	rec, env, more, err := decode(data)
	if err != nil {
		return nil, nil, err
	}
	if rec.ID != id {
		return nil, nil, fmt.Errorf("it is the record of session %q", rec.ID)
	}
	var found []Finding
	if env.Schema > Schema {
		found = append(found, Finding{ID: id, Kind: Newer, Writer: env.Writer})
	}
	if env.Checksum == "" {
		found = append(found, Finding{ID: id, Kind: Edited})
	}
	s.frozen[id] = env.Schema > Schema
	s.seen[id] = more
	return rec, found, nil
}

// Read reads the sessions in the state directory dir without taking it over, for a client that finds no daemon. Records that cannot be read
// are passed over.
func Read(dir string) ([]*session.Session, error) {
	s := on(realDisk{}, dir)
	names, err := s.disk.Directories(filepath.Join(dir, "sessions"))
	if err != nil {
		return nil, err
	}
	var all []*session.Session
	for _, id := range names {
		if rec, _, err := s.read(filepath.Join(s.SessionDir(id), RecordName), id); err == nil {
			all = append(all, rec)
		}
	}
	return all, nil
}
