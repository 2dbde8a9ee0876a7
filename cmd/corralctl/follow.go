package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"

	"github.com/corrald/corral/cmd/corralctl/transcript"
	"github.com/corrald/corral/internal/safefile"
)

// followLog shows the last lines of a session's log and then what comes, until the session is
// removed or the user has seen enough.
func (o *logsOptions) followLog(ctx context.Context, c *ctl, id string) error {
	manager, err := c.client.Manager(ctx)
	if err != nil {
		return err
	}
	directory := filepath.Join(manager.StateDirectory, "sessions", id)
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("cannot watch files: %w", err)
	}
	defer func() { _ = watcher.Close() }()
	if err := watcher.Add(directory); err != nil {
		return fmt.Errorf("cannot watch %q: %w", directory, err)
	}
	f := &follower{directory: directory, out: c}
	defer f.close()
	if err := f.showTail(o); err != nil {
		return err
	}
	left := make(chan struct{}) // nobody reads it any more
	go func() {
		awaitHangup(os.Stdout)
		close(left)
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-left:
			return nil
		case event, ok := <-watcher.Events:
			if !ok || event.Name == directory && event.Has(fsnotify.Remove|fsnotify.Rename) { // a session that is removed is moved away first
				return f.finish()
			}
			if event.Name != filepath.Join(directory, logName) {
				continue
			}
		case err, ok := <-watcher.Errors:
			if !ok || !errors.Is(err, fsnotify.ErrEventOverflow) {
				return err // after an overflow, reading on is all that is needed
			}
		}
		if err := f.read(); err != nil {
			return err
		}
	}
}

// follower reads a log that grows and whose file is replaced.
type follower struct {
	directory string
	out       *ctl
	playback  playback
	file      *os.File // nil while there is none
	buffer    []byte
}

// showTail shows the last lines of what is there.
func (f *follower) showTail(o *logsOptions) error {
	lines := o.lines
	if lines < 0 {
		lines = 10
	}
	last := &lastLines{out: f.out.out, limit: lines}
	f.playback.sink = last
	if !o.raw {
		f.playback.transcript = transcript.New(escapingWriter{last})
		f.playback.sink = f.playback.transcript
	}
	if err := f.readExisting(); err != nil {
		return err
	}
	if err := last.Close(); err != nil {
		return err
	}
	if f.playback.transcript == nil {
		f.playback.sink = f.out.out
	} else {
		f.playback.transcript.SetOutput(escapingWriter{f.out.out})
	}
	return f.out.out.Flush()
}

// readExisting reads what is there.
func (f *follower) readExisting() error {
	files, err := f.open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if files.older != nil {
		defer func() { _ = files.older.Close() }()
	}
	f.file = files.newer
	if err := f.playback.play(files); err != nil {
		return err
	}
	return f.flush()
}

func (f *follower) open() (*logFiles, error) {
	return openLogFiles(f.directory, func() (*os.File, error) { return safefile.Open(filepath.Join(f.directory, logName)) })
}

func (f *follower) flush() error {
	if f.playback.transcript == nil {
		return nil
	}
	return f.playback.transcript.Flush()
}

// finish shows what is left when no more comes: a last line without an end.
func (f *follower) finish() error {
	if f.playback.transcript != nil {
		if err := f.playback.transcript.Close(); err != nil {
			return err
		}
	}
	return f.out.out.Flush()
}

// copy shows what a file has from its position on. A size is on record before what was printed at
// it.
func (f *follower) copy(file *os.File) error {
	if f.buffer == nil {
		f.buffer = make([]byte, 32<<10)
	}
	for {
		n, err := file.Read(f.buffer)
		if n > 0 {
			if f.playback.transcript != nil && f.playback.sized {
				if sizes, ok := readSizes(f.directory); ok {
					f.playback.setSizes(sizes, true)
				}
			}
			if _, err := f.playback.Write(f.buffer[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return f.flush()
		}
		if err != nil {
			return err
		}
	}
}

// read shows what came since, first of the file that is open, then of the one that took its place.
func (f *follower) read() error {
	for {
		if f.file != nil {
			if err := f.drain(); err != nil {
				return err
			}
		}
		replaced, err := f.reopen()
		if err != nil || !replaced {
			return errors.Join(err, f.out.out.Flush())
		}
	}
}

// drain shows what was added to the open file.
func (f *follower) drain() error {
	if err := f.reposition(); err != nil {
		return err
	}
	return f.copy(f.file)
}

// reposition finds the place to read on at in a file that was cut at its beginning, which a smaller limit
// does, or that begins anew.
func (f *follower) reposition() error {
	info, err := f.file.Stat()
	if err != nil {
		return err
	}
	position, err := f.file.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	to := position
	if f.playback.sized {
		if sizes, ok := readSizes(f.directory); ok && f.isCurrent(info) {
			f.playback.setSizes(sizes, true)
			to = f.playback.at - sizes.Start()
		}
	}
	if to < 0 {
		err = f.playback.printMissing(-to)
	}
	if to < 0 || to > info.Size() {
		to = 0
	}
	if to != position {
		f.playback.at = f.playback.sizes.Start() + to
		_, seekErr := f.file.Seek(to, io.SeekStart)
		err = errors.Join(err, seekErr)
	}
	return err
}

// isCurrent tells whether what the log is called is the open file.
func (f *follower) isCurrent(open os.FileInfo) bool {
	now, err := os.Stat(filepath.Join(f.directory, logName))
	return err == nil && os.SameFile(open, now)
}

// reopen opens the file that is at the path now, and tells whether it is another one than before.
// What was added to the one before until it was replaced is shown first, then what came between the
// two, as far as it is still there.
func (f *follower) reopen() (bool, error) {
	files, err := f.open()
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if files.older != nil {
		defer func() { _ = files.older.Close() }()
	}
	if f.file == nil { // withHost was no log so far: all of it is new
		f.file = files.newer
		return true, f.playback.play(files)
	}
	same, err := sameFile(f.file, files.newer)
	if err == nil && !same {
		err = errors.Join(f.drain(), f.showGap(files))
	}
	if same || err != nil {
		return false, errors.Join(err, files.newer.Close())
	}
	_ = f.file.Close()
	f.file = files.newer
	f.playback.setSizes(files.sizes, files.sized)
	f.playback.at = files.sizes.Start()
	return true, nil
}

// sshBridge shows what is between the end of the file that was read so far and the begin of the newer
// one of files, and tells what is missing of it.
func (f *follower) showGap(files *logFiles) error {
	isOpen, err := sameFile(files.older, f.file)
	if err != nil || isOpen {
		return err
	}
	at, wasSized := f.playback.at, f.playback.sized && files.sized
	f.playback.setSizes(files.sizes, files.sized)
	if files.older == nil {
		return f.printMissing(wasSized, at, files.sizes.Start())
	}
	begin, _ := files.sizes.OlderStart()
	if err := f.printMissing(wasSized, at, begin); err != nil {
		return err
	}
	if wasSized && at > begin { // the older file was cut to where it was read to, and beyond
		if _, err := files.older.Seek(at-begin, io.SeekStart); err != nil {
			return err
		}
		begin = at
	}
	f.playback.at = begin
	return f.copy(files.older)
}

// printMissing tells what is missing between two places of the log, if something is or, where sizes
// say nothing, may be.
func (f *follower) printMissing(sized bool, from, to int64) error {
	switch {
	case !sized:
		return f.playback.printMissing(0)
	case from < to:
		return f.playback.printMissing(to - from)
	}
	return nil
}

func (f *follower) close() {
	if f.file != nil {
		_ = f.file.Close()
	}
}
