// Package dbusapi is the public contract of Corral on the user's session bus: names, paths, wire
// types, errors, and the interface definitions that are served, installed and documented. Clients
// and the server share it; it neither sends nor answers calls.
package dbusapi

import (
	_ "embed" // for the interface definitions
	"strings"

	"github.com/godbus/dbus/v5"
)

// The bus name, the Manager's path and the interfaces. Sessions live below SessionsPath.
const (
	BusName          = "io.github.corrald.Corral1"
	ManagerPath      = dbus.ObjectPath("/io/github/corrald/Corral1")
	SessionsPath     = ManagerPath + "/session"
	ManagerInterface = "io.github.corrald.Corral1.Manager"
	SessionInterface = "io.github.corrald.Corral1.Session"
)

// ManagerXML and SessionXML are the interface definitions, in the introspection format of the D-Bus
// specification.
var (
	//go:embed io.github.corrald.Corral1.Manager.xml
	ManagerXML string
	//go:embed io.github.corrald.Corral1.Session.xml
	SessionXML string
)

// Flags of RemoveSession, SendInput, ContinueAfterLimit and Capture.
const (
	RemoveForce    uint64 = 1 // stop the session first if it is running
	RemoveWorktree uint64 = 2 // remove its git worktree too, unless that would lose work
	RemoveDiscard  uint64 = 4 // with RemoveWorktree: remove the worktree in any case

	InputEnter     uint64 = 1 // press Enter after the text
	InputIfWaiting uint64 = 2 // only while the agent waits for input
	InputResume    uint64 = 4 // resume a suspended session first

	ContinueIfDue uint64 = 1 // only if ContinueTimestamp has passed

	CaptureEscapes uint64 = 1 // keep escape sequences
)

// MaxCapture is the maximum size of the text that Capture returns, in bytes.
const MaxCapture = 64 << 10

// SessionRow is one row of ListSessions.
type SessionRow struct {
	ID          string
	Agent       string
	State       string
	Activity    string
	Attention   string
	StateChange uint64 // CLOCK_REALTIME, microseconds
	Path        dbus.ObjectPath
}

// SessionRowEx is one row of ListSessionsEx, with the columns of a table of sessions. Times are
// CLOCK_REALTIME microseconds, 0 if there is none.
type SessionRowEx struct {
	ID          string
	Agent       string
	State       string
	Activity    string
	Attention   string
	Reason      string
	Workspace   string
	Description string
	Unit        string
	StateChange uint64 // the time of creation if the state never changed
	ActiveSince uint64 // since when the session is idle, otherwise its last known activity
	Leftovers   uint32 // leftover processes of an agent that has exited
	OnLogin     string
	Path        dbus.ObjectPath
	// More has the facts that later versions added, each only if there is one. The XML lists them.
	More map[string]dbus.Variant
}

// AgentRow is one row of ListAgents. Details has Available b, Resumable b, Accounts b, Command as,
// ResumeCommand as, Source s.
type AgentRow struct {
	Name        string
	Description string
	Details     map[string]dbus.Variant
}

// Stray is one row of ListStrays: a process of a session outside of the session's scope.
type Stray struct {
	Session      string // id of the session
	PID          uint32
	ControlGroup string // the one that contains the process
	Name         string // comm of the process, at most 15 bytes
}

// RunRow is one row of Runs. Start and End are CLOCK_REALTIME microseconds; End is 0 while it runs.
type RunRow struct {
	ID         string
	Start, End uint64
	Result     string
	Code       int32
	Status     int32
	Reason     string
}

// Problem is one entry of Problems. Session is the id of the session concerned, "" for the daemon
// itself.
type Problem struct {
	Session string
	Text    string
}

// AttentionRow is one entry of the Manager's Attention: a session that needs a person and has not
// been acknowledged.
type AttentionRow struct {
	ID     string `json:"Id"` // as in the JSON objects of sessions
	Reason string // the session's Attention
	Path   dbus.ObjectPath
}

// Explanation is one row of Explain. Time is CLOCK_REALTIME microseconds, 0 if there is none.
type Explanation struct {
	Subject string // state, activity or attention
	Source  string // where the value comes from
	Time    uint64
	Value   string
}

// Variable is one row of GetEnvironment: the name of an environment variable and its source.
type Variable struct {
	Name   string
	Source string // manager, login-shell, corral, definition, file, caller, session
}

// UnitProperty is one entry of UnitProperties: a property of the session's scope, in the form that
// systemd's StartTransientUnit expects.
type UnitProperty struct {
	Name  string
	Value dbus.Variant
}

// SessionPath returns the object path of the session with this id. The id is escaped as by
// systemd's bus_label_escape.
func SessionPath(id string) dbus.ObjectPath {
	return SessionsPath + "/" + dbus.ObjectPath(escapeLabel(id))
}

// SessionID returns the id of the session at this object path. It returns false if the path is not
// the path of a session.
func SessionID(path dbus.ObjectPath) (string, bool) {
	label, ok := strings.CutPrefix(string(path), string(SessionsPath)+"/")
	if !ok || label == "" || strings.Contains(label, "/") {
		return "", false
	}
	id, ok := unescapeLabel(label)
	return id, ok && SessionPath(id) == path
}

const hexDigits = "0123456789abcdef"

func escapeLabel(s string) string {
	if s == "" {
		return "_"
	}
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		digit := c >= '0' && c <= '9'
		if letter || digit && i > 0 {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('_')
		b.WriteByte(hexDigits[c>>4])
		b.WriteByte(hexDigits[c&15])
	}
	return b.String()
}

func unescapeLabel(s string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '_' {
			b.WriteByte(s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", false
		}
		hi, lo := strings.IndexByte(hexDigits, s[i+1]), strings.IndexByte(hexDigits, s[i+2])
		if hi < 0 || lo < 0 {
			return "", false
		}
		b.WriteByte(byte(hi<<4 | lo))
		i += 2
	}
	return b.String(), true
}
