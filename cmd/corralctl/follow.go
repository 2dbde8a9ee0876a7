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

	"github.com/corrald/corral/internal/safefile"
	"github.com/corrald/corral/internal/shimwire"
)

// followLog shows the last lines of the log in a session's directory and then new output, until the
// session is removed, stdout is closed or, if it is not nil, the channel ended is.
func (o *logsOptions) followLog(ctx context.Context, c *ctl, directory string, ended <-chan struct{}) error {
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
	hungUp := make(chan struct{}) // closed when the reader of stdout is gone
	go func() {
		awaitHangup(os.Stdout)
		close(hungUp)
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-hungUp:
			return nil
		case <-ended:
			return errors.Join(f.read(), f.playback.Close(), f.out.out.Flush())
		case event, ok := <-watcher.Events:
			// to remove a session, corrald first moves its directory away
			if !ok || event.Name == directory && event.Has(fsnotify.Remove|fsnotify.Rename) {
				return errors.Join(f.playback.Close(), f.out.out.Flush())
			}
			if event.Name != filepath.Join(directory, shimwire.LogName) {
				continue
			}
		case err, ok := <-watcher.Errors:
			if !ok || !errors.Is(err, fsnotify.ErrEventOverflow) {
				return err // after an overflow, the log is simply read on
			}
		}
		if err := f.read(); err != nil {
			return err
		}
	}
}

// follower reads a growing log whose file is replaced by rotation.
type follower struct {
	directory string
	out       *ctl
	playback  *playback
	file      *os.File // nil while there is none
	buffer    []byte
}

// showTail shows the last lines of the existing log.
func (f *follower) showTail(o *logsOptions) error {
	lines := o.lines
	if lines < 0 {
		lines = 10
	}
	f.playback = newPlayback(f.out.out, o.raw, lines)
	if err := f.readExisting(); err != nil {
		return err
	}
	if err := f.playback.showAll(f.out.out); err != nil {
		return err
	}
	return f.out.out.Flush()
}

// readExisting reads the existing log.
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
	return openLogFiles(f.directory,
		func() (*os.File, error) { return safefile.Open(filepath.Join(f.directory, shimwire.LogName)) })
}

func (f *follower) flush() error {
	if f.playback.transcript == nil {
		return nil
	}
	return f.playback.transcript.Flush()
}

// copy shows a file from its current offset. Before each part, it reads the recorded terminal sizes
// again: a size is recorded before the output that follows it.
func (f *follower) copy(file *os.File) error {
	if f.buffer == nil {
		f.buffer = make([]byte, 32<<10)
	}
	for {
		n, err := file.Read(f.buffer)
		if n > 0 {
			if f.playback.transcript != nil && f.playback.sizes.known {
				if sizes := readSizes(f.directory); sizes.known {
					f.playback.sizes = sizes
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

// read shows the new output: first of the open file, then of the file that has replaced it.
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

// drain shows what was appended to the open file.
func (f *follower) drain() error {
	if err := f.reposition(); err != nil {
		return err
	}
	return f.copy(f.file)
}

// reposition corrects the offset in the open file after its beginning was cut off, because of a
// smaller limit, or after it was truncated.
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
	if f.playback.sizes.known {
		if sizes := readSizes(f.directory); sizes.known && f.isCurrent(info) {
			f.playback.sizes = sizes
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

// isCurrent returns whether the open file is still the one at the log's path.
func (f *follower) isCurrent(open os.FileInfo) bool {
	now, err := os.Stat(filepath.Join(f.directory, shimwire.LogName))
	return err == nil && os.SameFile(open, now)
}

// reopen opens the file at the log's path and returns whether it is a new one. It first shows the
// rest of the previous file, and then the output between the two files, as far as it still exists.
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
	if f.file == nil { // there was no log before: all of it is new
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
	f.playback.sizes = files.sizes
	f.playback.at = files.sizes.Start()
	return true, nil
}

// showGap shows the output between the end of the previous file and the beginning of files.newer,
// and prints how much of it is missing.
func (f *follower) showGap(files *logFiles) error {
	isOpen, err := sameFile(files.older, f.file)
	if err != nil || isOpen {
		return err
	}
	at, wasSized := f.playback.at, f.playback.sizes.known && files.sizes.known
	f.playback.sizes = files.sizes
	if files.older == nil {
		return f.printMissing(wasSized, at, files.sizes.Start())
	}
	begin, _ := files.sizes.OlderStart()
	if err := f.printMissing(wasSized, at, begin); err != nil {
		return err
	}
	if wasSized && at > begin { // the previous file was cut off beyond the offset that was read
		if _, err := files.older.Seek(at-begin, io.SeekStart); err != nil {
			return err
		}
		begin = at
	}
	f.playback.at = begin
	return f.copy(files.older)
}

// printMissing prints how much output is missing between two offsets of the log. Without recorded
// sizes it prints that some may be missing.
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
