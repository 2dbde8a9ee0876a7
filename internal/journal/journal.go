// Package journal is where the daemon's log records go: the systemd journal, as structured entries,
// or a person's terminal.
//
// Callers use log/slog: a constant message, and facts as attributes, which become the journal's
// fields (see fields.go for their names). Nothing here blocks them, whatever becomes of journald:
// records wait in a bounded queue, those that do not fit are counted, and the count is told.
package journal

import (
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Message ids, for the attribute "message_id": each marks one kind of record, so that "journalctl
// MESSAGE_ID=…" finds it and "journalctl -x" explains it, as packaging/corral.catalog has it. They
// are random and never change.
const (
	// SessionStateChanged: a session's state is another one. Attributes: session, agent, state, unit,
	// and result, run where there are any.
	SessionStateChanged = "02e357a99bbf411f87191804ef76c8c1"
	// DaemonStarted: corrald has taken over what was there and answers on the bus.
	DaemonStarted = "6f0cd178b8034566807ef35a1297878b"
	// DaemonStopped: corrald has saved everything and exits.
	DaemonStopped = "c6e4d4c13f7d487ea7d0c415a597a172"
	// SessionAdopted: a session that ran while the daemon was away is supervised again. Attributes:
	// session, agent, state, unit.
	SessionAdopted = "69caedd15ef445e4985e559e9fd283c5"
	// RecordDamaged: a session's saved record could not be read; it was set aside. Attributes:
	// session, path, err.
	RecordDamaged = "640cb2070b034a57910232fe14c5f70c"
	// RecordNotSaved: a session's record could not be written, so its last change may be lost with the
	// daemon. Attributes: session, err.
	RecordNotSaved = "7cbdf2e83ba94c318d64388ef727241f"
	// RecordSavedAgain: what could not be saved is saved now. Attributes: session.
	RecordSavedAgain = "d36dac36ac2edeb05c591c4d1427ec2e"
	// NotWatched: files cannot be watched, so that what becomes of them is told late. Attributes:
	// session if it is about one, err.
	NotWatched = "1313430da5f4d1100754e136567414b5"
	// HookFailed: a program that is to tell the user something could not be run, failed, or took too
	// long. Attributes: hook, err.
	HookFailed = "c92f8814d7c94d7eb0e20068f5658ec7"
)

// journalSocket is where journald takes records, by the Native Journal Protocol.
const journalSocket = "/run/systemd/journal/socket"

// stderrIsJournal tells whether the file is the stream that systemd made for us: JOURNAL_STREAM,
// systemd.exec(5), is its device and inode. A descendant that was given another standard error
// inherits the variable all the same.
func stderrIsJournal(stream string, stderr *os.File) bool {
	var st unix.Stat_t
	if stream == "" || unix.Fstat(int(stderr.Fd()), &st) != nil {
		return false
	}
	return stream == fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}

// isRead tells whether somebody may read what is written to the file: it is neither closed nor a
// device other than a terminal.
func isRead(f *os.File) bool {
	info, err := f.Stat()
	if err != nil {
		return false
	}
	if info.Mode()&fs.ModeCharDevice == 0 {
		return true
	}
	_, err = unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
