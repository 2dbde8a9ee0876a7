// Package store keeps the sessions on disk: one directory and one small JSON record for each, so that damage stays with one.
//
// A record is an envelope around the session: schema, writer, checksum. It is replaced atomically and durably, and the record before it stays
// beside it. What this version does not know is kept as it was. A record of a newer schema is shown, never written.
package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/atomicfile"
	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/internal/failpoint"
	"github.com/corrald/corral/supervisor/session"
)

// Schema is the version of the record that this program writes.
const Schema = 1

// The files of a session's directory that the store knows, and the lock of the whole state directory.
const (
	RecordName   = "session.json"
	previousName = "session.json.prev"
	lockName     = "lock"
)

// maxRecord bounds a record that is read, in bytes: a session has 2 MiB of arguments and environment at the most.
const maxRecord = 16 << 20

// Store is the state directory, held by this process alone.
type Store struct {
	dir    string // $XDG_STATE_HOME/corral
	lock   *os.File
	frozen map[string]bool // sessions whose record is newer than this program: read, never written
	seen   map[string]extras
}

// extras is what a record holds that this program has no names for.
type extras map[string]json.RawMessage

// ErrLocked is returned by Open when another process holds the state directory.
var ErrLocked = errors.New("another corrald is running")

// Damage is a record that could not be read as it is. Recovered tells that the record before it was taken instead.
type Damage struct {
	ID        string
	Recovered bool
	Err       error
}

// Open makes the state directory dir if it is not there, private to the user, and locks it for the life of the process.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(filepath.Join(dir, "sessions"), 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the state directory: %w", err)
	}
	for _, d := range []string{dir, filepath.Join(dir, "sessions")} {
		if err := os.Chmod(d, 0o700); err != nil {
			return nil, fmt.Errorf("cannot make the state directory private: %w", err)
		}
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot lock the state directory: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("cannot lock %q: %w", dir, ErrLocked)
		}
		return nil, fmt.Errorf("cannot lock %q: %w", dir, err)
	}
	return &Store{dir: dir, lock: lock, frozen: map[string]bool{}, seen: map[string]extras{}}, nil
}

// Close gives the lock up.
func (s *Store) Close() error { return s.lock.Close() }

// SessionDir returns the directory of a session, for its log and its exit_status.
func (s *Store) SessionDir(id string) string { return filepath.Join(s.dir, "sessions", id) }

// Create makes the directory of a new session. It fails if there is one.
func (s *Store) Create(id string) error {
	if err := os.Mkdir(s.SessionDir(id), 0o700); err != nil {
		return fmt.Errorf("cannot create session %q: %w", id, err)
	}
	failpoint.Hit("create.directory-made")
	return nil
}

// ErrNewer is returned when a session's record was written by a newer version, which this one must not replace.
var ErrNewer = errors.New("the record was written by a newer version of Corral")

// Save replaces the session's record, durably. The calls for different sessions may run at the same time; Load may not.
func (s *Store) Save(rec *session.Session, writer string) error {
	if s.frozen[rec.ID] {
		return fmt.Errorf("cannot save session %q: %w", rec.ID, ErrNewer)
	}
	failpoint.Hit("save.before")
	data, err := encode(rec, s.seen[rec.ID], writer)
	if err != nil {
		return fmt.Errorf("cannot save session %q: %w", rec.ID, err)
	}
	dir := s.SessionDir(rec.ID)
	record, previous := filepath.Join(dir, RecordName), filepath.Join(dir, previousName)
	if err := keep(record, previous); err != nil {
		return fmt.Errorf("cannot save session %q: %w", rec.ID, err)
	}
	failpoint.Hit("save.kept")
	if err := atomicfile.Write(record, data, 0o600); err != nil {
		return fmt.Errorf("cannot save session %q: %w", rec.ID, err)
	}
	failpoint.Hit("save.after")
	return nil
}

// keep gives the record a second name, which it has until the next one is kept: at no moment is there neither the old nor the new. Where there is
// no record, because it was damaged, the one before it stays what it is.
func keep(record, previous string) error {
	link := previous + ".new"
	_ = os.Remove(link)
	err := os.Link(record, link)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	failpoint.Hit("save.linked")
	if err == nil {
		err = os.Rename(link, previous)
	}
	_ = os.Remove(link) // rename(2) leaves it where both are names of one inode already
	return err
}

// SyncExit makes the record of the session's last exit durable: what follows from that alone needs no other record.
func (s *Store) SyncExit(id string) error {
	if err := exitstatus.Sync(s.SessionDir(id)); err != nil {
		return fmt.Errorf("cannot save the exit of session %q: %w", id, err)
	}
	return nil
}

// KeepExit writes the record of the session's last exit, durably: its shim could not.
func (s *Store) KeepExit(id string, status exitstatus.Status) error {
	pending, err := exitstatus.Prepare(s.SessionDir(id))
	if err == nil {
		err = pending.Write(status)
	}
	if err != nil {
		return fmt.Errorf("cannot save the exit of session %q: %w", id, err)
	}
	return nil
}

// Remove forgets a session with its log. The records go first, the current one after the one it would be replaced by, so that what a power cut
// leaves is a session as it was, or none.
func (s *Store) Remove(id string) error {
	dir := s.SessionDir(id)
	for _, name := range []string{previousName, RecordName} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot remove session %q: %w", id, err)
		}
	}
	failpoint.Hit("remove.record-gone")
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("cannot remove session %q: %w", id, err)
	}
	delete(s.frozen, id)
	delete(s.seen, id)
	return nil
}

// Load reads every session. A record that cannot be read is set aside under the name session.json.damaged, and the one before it is taken;
// where there is none either, the session is missing from the result, and its directory stays.
func (s *Store) Load() ([]*session.Session, []Damage, error) {
	entries, err := os.ReadDir(filepath.Join(s.dir, "sessions"))
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read the sessions: %w", err)
	}
	var all []*session.Session
	var damaged []Damage
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		rec, damage := s.load(e.Name())
		if rec != nil {
			all = append(all, rec)
		}
		if damage != nil {
			damaged = append(damaged, *damage)
		}
	}
	return all, damaged, nil
}

func (s *Store) load(id string) (*session.Session, *Damage) {
	record := filepath.Join(s.SessionDir(id), RecordName)
	rec, err := s.read(record, id)
	if err == nil {
		return rec, nil
	}
	missing := errors.Is(err, fs.ErrNotExist)
	previous, prevErr := s.read(filepath.Join(s.SessionDir(id), previousName), id)
	if missing && errors.Is(prevErr, fs.ErrNotExist) {
		s.finish(id)
		return nil, nil
	}
	if !missing {
		_ = os.Rename(record, record+".damaged")
	}
	return previous, &Damage{ID: id, Recovered: prevErr == nil, Err: err}
}

// finish takes away what a creation or a removal that was cut short has left, so that the id can be used. Where a shim is about to record an exit,
// the record could not be saved, and nothing is taken away.
func (s *Store) finish(id string) {
	dir := s.SessionDir(id)
	for _, name := range []string{"." + exitstatus.FileName + ".new", RecordName + ".damaged"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return
		}
	}
	_ = os.RemoveAll(dir)
}

func (s *Store) read(path, id string) (*session.Session, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxRecord {
		return nil, fmt.Errorf("%q is no record", path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	rec, env, more, err := decode(data)
	if err != nil {
		return nil, err
	}
	if rec.ID != id {
		return nil, fmt.Errorf("the record is that of session %q", rec.ID)
	}
	s.frozen[id] = env.Schema > Schema
	s.seen[id] = more
	return rec, nil
}

// envelope is what stands in the file around a session.
type envelope struct {
	Schema   int             `json:"schema"`
	Writer   string          `json:"writer"` // the version of Corral that wrote it
	Checksum string          `json:"checksum"`
	Session  json.RawMessage `json:"session"`
}

func encode(rec *session.Session, more extras, writer string) ([]byte, error) {
	body, err := json.Marshal(rec)
	if err != nil {
		return nil, err
	}
	if len(more) > 0 {
		all := extras{}
		if err := json.Unmarshal(body, &all); err != nil {
			return nil, err
		}
		for name, value := range more {
			if _, known := all[name]; !known {
				all[name] = value
			}
		}
		if body, err = json.Marshal(all); err != nil {
			return nil, err
		}
	}
	data, err := json.MarshalIndent(envelope{Schema, writer, checksum(body), body}, "", " ")
	return append(data, '\n'), err
}

func decode(data []byte) (*session.Session, envelope, extras, error) {
	var env envelope
	if err := json.Unmarshal(data, &env); err != nil {
		return nil, env, nil, err
	}
	var body bytes.Buffer
	if err := json.Compact(&body, env.Session); err != nil {
		return nil, env, nil, err
	}
	if env.Checksum != checksum(body.Bytes()) {
		return nil, env, nil, errors.New("the checksum does not fit")
	}
	rec := new(session.Session)
	if err := json.Unmarshal(body.Bytes(), rec); err != nil {
		return nil, env, nil, err
	}
	more := extras{}
	if err := json.Unmarshal(body.Bytes(), &more); err != nil {
		return nil, env, nil, err
	}
	for _, name := range knownNames() {
		delete(more, name)
	}
	return rec, env, more, nil
}

func checksum(body []byte) string {
	sum := sha256.Sum256(body)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Read reads the sessions in the state directory dir without taking it over, for a client that finds no daemon. Records that cannot be read
// are passed over.
func Read(dir string) ([]*session.Session, error) {
	s := &Store{dir: dir, frozen: map[string]bool{}, seen: map[string]extras{}}
	entries, err := os.ReadDir(filepath.Join(dir, "sessions"))
	if err != nil {
		return nil, err
	}
	var all []*session.Session
	for _, e := range entries {
		if rec, err := s.read(filepath.Join(s.SessionDir(e.Name()), RecordName), e.Name()); err == nil {
			all = append(all, rec)
		}
	}
	return all, nil
}
