// Package journal writes the daemon's log records to the systemd journal, as structured entries, or
// to standard error, as text.
//
// Callers use log/slog with a constant message, and with facts as attributes, which become fields
// of the journal (see encode.go for their names). Logging never blocks, even if journald does not
// respond: records are queued, and the number of records that do not fit into the queue is logged.
package journal

// Message IDs, for the attribute "message_id". Each identifies a kind of record: "journalctl
// MESSAGE_ID=…" finds the records, and "journalctl -x" explains them with the text in
// packaging/corral.catalog. They are random and never change.
const (
	// SessionStateChanged: the state of a session has changed. Attributes: session, agent, state,
	// unit, and result and run if there are any.
	SessionStateChanged = "02e357a99bbf411f87191804ef76c8c1"
	// DaemonStarted: corrald has adopted the running sessions and answers calls on the bus.
	DaemonStarted = "6f0cd178b8034566807ef35a1297878b"
	// DaemonStopped: corrald has saved everything and exits.
	DaemonStopped = "c6e4d4c13f7d487ea7d0c415a597a172"
	// SessionAdopted: a session that was running while no daemon was is supervised again. Attributes:
	// session, agent, state, unit.
	SessionAdopted = "69caedd15ef445e4985e559e9fd283c5"
	// RecordDamaged: the saved record of a session could not be read and was set aside. Attributes:
	// session, path, err.
	RecordDamaged = "640cb2070b034a57910232fe14c5f70c"
	// RecordNotSaved: the record of a session could not be written, so its last change is lost if the
	// daemon exits. Attributes: session, err.
	RecordNotSaved = "7cbdf2e83ba94c318d64388ef727241f"
	// RecordSavedAgain: a record that could not be saved before is now saved. Attributes: session.
	RecordSavedAgain = "d36dac36ac2edeb05c591c4d1427ec2e"
	// NotWatched: files cannot be watched, so their changes may be reported late. Attributes: err, and
	// session if the record is about one.
	NotWatched = "1313430da5f4d1100754e136567414b5"
	// HookFailed: a hook, which is a program that notifies the user, could not be started, failed, or
	// ran for too long. Attributes: hook, err.
	HookFailed = "c92f8814d7c94d7eb0e20068f5658ec7"
)
