package supervisor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/internal/hookreport"
	"github.com/corrald/corral/internal/inotify"
	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/supervisor/store"
)

// runFiles watches the files of a run: its record of an exit, the socket of its shim, and the
// events of its control group.
type runFiles struct {
	e            *entry
	stateDir     int32  // watch of the session's state directory, 0 for none
	runtimeDir   string // path of its watched runtime directory, "" for none
	controlGroup string // path of the watched cgroup.events of its control group
	err          error  // why they are not watched

	nextEventSlot time.Duration // by CLOCK_MONOTONIC: when the next event would be handled if bursts were not allowed
	paused        bool          // they are not watched for a moment: there were too many events
}

// watch watches the files of a run. While they cannot be watched, they are examined periodically:
// see retrier.
//
// The shim writes exit_status to both directories. In the runtime directory nothing else is written
// while an agent prints. The state directory contains the log: only names that appear or disappear
// there are reported, so that a record that is written while its agent runs is found then, and
// never believed.
func (f *runFiles) watch() { f.recordError(f.tryWatch()) }

// recordError stores, logs and publishes why the files cannot be watched, nil if they are.
func (f *runFiles) recordError(err error) {
	f.e.loop.problems.retries.recordWatchError(f.e.rec.ID, &f.err, err)
}

// tryWatch is watch, and returns why the files cannot be watched.
func (f *runFiles) tryWatch() (err error) {
	e := f.e
	const names = unix.IN_MOVED_TO | unix.IN_DELETE | unix.IN_ONLYDIR
	f.stateDir, err = e.loop.files.Watch(e.loop.records.SessionDir(e.rec.ID), names, func(ev inotify.Event) {
		switch {
		case !f.takeEventSlot(): // the directory is examined later
		case ev.Mask&unix.IN_DELETE == 0 && ev.Name == exitstatus.FileName:
			e.run.exit.read()
		case ev.Mask&unix.IN_DELETE != 0 && ev.Name == store.RecordName:
			f.resaveRecord()
		}
	}, f.rewatch)
	if err != nil {
		return err
	}
	dir := e.loop.settings.runtimeDir(e.rec.ID)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	err = e.loop.files.WatchPath(dir, func(ev fsnotify.Event) {
		switch name := filepath.Base(ev.Name); {
		case !f.takeEventSlot(): // the directory is examined later
		case ev.Name == dir && ev.Has(fsnotify.Remove|fsnotify.Rename):
			if !e.pending.Starting { // else the directory of a start that has failed is being removed
				f.rewatch()
			}
		case ev.Has(fsnotify.Chmod):
			e.run.reports.updateAttached() // the mode of tmux's socket shows whether a client is attached
		case !ev.Has(fsnotify.Create):
		case name == shimSocket:
			e.run.shim.checkRestored()
			e.run.shim.connect()
		case name == exitstatus.FileName:
			e.run.exit.read()
		case name == hookreport.FileName:
			e.run.reports.readLeft()
		}
	})
	if err != nil {
		return err
	}
	f.runtimeDir = dir
	return f.watchControlGroup()
}

// watchControlGroup watches whether the run's scope is frozen or thawed, by any program, or becomes
// empty, and checks both once. It returns nil if the control group does not exist.
func (f *runFiles) watchControlGroup() error {
	e, r := f.e, f.e.rec.Run
	if f.controlGroup != "" || !r.Live() || r.Scope != session.ScopeActive || r.ControlGroup == "" {
		return nil
	}
	events := e.loop.system.ControlGroups.EventsFile(r.ControlGroup)
	err := e.loop.files.WatchPath(events, func(fsnotify.Event) { e.run.scope.check() })
	if errors.Is(err, fs.ErrNotExist) { // systemd reports the end of the scope
		return nil
	}
	if err == nil {
		f.controlGroup = events
	}
	e.run.scope.check()
	return err
}

// rewatch watches the files of the session's run again, and examines them, as they may have
// changed in the meantime.
func (f *runFiles) rewatch() {
	f.unwatch()
	f.watch()
	f.e.check()
}

func (f *runFiles) unwatch() {
	files := f.e.loop.files
	files.Unwatch(&f.stateDir)
	files.UnwatchPath(&f.runtimeDir)
	files.UnwatchPath(&f.controlGroup)
}

// The agent can write to the directories of its run: it can change files there at any rate. Of a
// burst, eventBurst events are handled immediately, and then one in each eventInterval.
const (
	eventBurst    = 32
	eventInterval = 100 * time.Millisecond
)

// takeEventSlot reports whether an event of the run's directories may be handled immediately, and
// counts it. Once the limit is reached, the directories are not watched for eventInterval, so that
// further events do not wake the daemon. After that they are watched again and examined, so that no
// file that exists by then is missed.
func (f *runFiles) takeEventSlot() bool {
	e, run := f.e, f.e.rec.Run.ID
	now := e.loop.clocks.Monotonic()
	f.nextEventSlot = max(f.nextEventSlot, now)
	if f.nextEventSlot-now <= (eventBurst-1)*eventInterval {
		f.nextEventSlot += eventInterval
		return true
	}
	f.unwatch()
	f.paused = true
	e.loop.clocks.AfterFunc(eventInterval, func() {
		e.postFor(run, func() {
			if e.rec.Run.Live() {
				f.paused = false
				f.rewatch()
				f.checkRecord()
			}
		})
	})
	return false
}

// checkRecord saves a session again if its record does not exist.
func (f *runFiles) checkRecord() {
	e := f.e
	if !e.saving.unsaved && !exists(filepath.Join(e.loop.records.SessionDir(e.rec.ID), store.RecordName)) {
		f.resaveRecord()
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// resaveRecord saves a session again after somebody has removed its record, usually together with
// its directory. The directory is then created again and watched: the kernel does not report the
// removal of a directory that a shim has open.
func (f *runFiles) resaveRecord() {
	e, run := f.e, f.e.rec.Run.ID
	if e.removed || e.pending.Removing() || !e.rec.Run.Live() {
		return
	}
	if e.takeLogSlot("removed record") {
		e.loop.log.Warn("the record of a running session was removed; writing it again", "session", e.rec.ID)
	}
	e.recordChanged()
	e.effects.afterSave(func() {
		e.postFor(run, func() {
			if !e.rec.Run.Live() {
				return
			}
			f.rewatch()
			if f.takeEventSlot() {
				f.checkRecord() // the removal may still be in progress
			}
		})
	})
}
