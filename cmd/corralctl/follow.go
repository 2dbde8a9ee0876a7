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
)

// logName is the file that a session's output goes to; when it is full it is renamed, and a new one takes its place.
const logName = "output.log"

// followLog shows the last lines of a session's log and then what comes, until the session is removed or the user has seen enough.
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
	f := &follower{path: filepath.Join(directory, logName), out: c}
	defer f.close()
	if err := f.begin(o); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event, ok := <-watcher.Events:
			if !ok || event.Name == directory && event.Has(fsnotify.Remove|fsnotify.Rename) { // a session that is removed is moved away first
				return f.finish()
			}
			if event.Name != f.path {
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

// follower reads a file that grows and is replaced.
type follower struct {
	path string
	out  *ctl
	sink io.Writer
	text *transcript.Transcript // nil if it is shown as it was printed
	file *os.File               // nil while there is none
}

// begin shows the last lines of what is there.
func (f *follower) begin(o *logsOptions) error {
	lines := o.lines
	if lines < 0 {
		lines = 10
	}
	last := &lastLines{out: f.out.out, limit: lines}
	f.sink = last
	if !o.raw {
		f.text = transcript.New(last)
		f.sink = f.text
	}
	if err := f.catchUp(); err != nil {
		return err
	}
	if err := last.Close(); err != nil {
		return err
	}
	if f.text == nil {
		f.sink = f.out.out
	} else {
		f.text.PassTo(f.out.out)
	}
	return f.out.out.Flush()
}

// catchUp reads what is there, and before that what was printed before this file was begun.
func (f *follower) catchUp() error {
	file, err := os.Open(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	f.file = file
	if err := copyBefore(f.sink, f.path+".1", file); err != nil {
		return err
	}
	return f.copy()
}

// finish shows what is left when no more comes: a last line without an end.
func (f *follower) finish() error {
	if f.text != nil {
		if err := f.text.Close(); err != nil {
			return err
		}
	}
	return f.out.out.Flush()
}

// copy shows what the open file has from its position on.
func (f *follower) copy() error {
	if _, err := io.Copy(f.sink, f.file); err != nil || f.text == nil {
		return err
	}
	return f.text.Flush()
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

// drain shows what was added to the open file; one that became shorter begins anew.
func (f *follower) drain() error {
	info, err := f.file.Stat()
	if err != nil {
		return err
	}
	position, err := f.file.Seek(0, io.SeekCurrent)
	if err == nil && info.Size() < position {
		_, err = f.file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return err
	}
	return f.copy()
}

// reopen opens the file that is at the path now, and tells whether it is another one than before. What was added to the one before until it was
// replaced is shown first, and then what came between the two, if it was all replaced once more meanwhile.
func (f *follower) reopen() (bool, error) {
	file, err := os.Open(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if f.file != nil {
		same, err := sameFile(f.file, file)
		if err == nil && !same {
			err = errors.Join(f.drain(), f.copyBetween(file))
		}
		if same || err != nil {
			return false, errors.Join(err, file.Close())
		}
		_ = f.file.Close()
	}
	f.file = file
	return true, nil
}

// copyBetween shows the file that came after the open one and before now. Of several such files only the last is there.
func (f *follower) copyBetween(now *os.File) error {
	between, err := os.Open(f.path + ".1")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = between.Close() }()
	isOpen, err1 := sameFile(between, f.file)
	isNow, err2 := sameFile(between, now) // renamed meanwhile: it is read next in any case
	if err := errors.Join(err1, err2); err != nil || isOpen || isNow {
		return err
	}
	_, err = io.Copy(f.sink, between)
	return err
}

func sameFile(a, b *os.File) (bool, error) {
	one, err1 := a.Stat()
	other, err2 := b.Stat()
	return err1 == nil && err2 == nil && os.SameFile(one, other), errors.Join(err1, err2)
}

func (f *follower) close() {
	if f.file != nil {
		_ = f.file.Close()
	}
}
