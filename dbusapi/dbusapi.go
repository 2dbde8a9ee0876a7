// Package dbusapi is the public contract of Corral on the user's session bus: names, paths, wire
// types, errors, and the interface definitions that are served, installed and documented. Clients
// and the server share it; it knows neither how a call is sent nor how it is answered.
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

// Flags of RemoveSession, SendInput and Capture.
const (
	RemoveForce    uint64 = 1 // also when it has not ended: it is stopped first
	RemoveWorktree uint64 = 2 // its git worktree too, unless something would be lost with it
	RemoveDiscard  uint64 = 4 // with RemoveWorktree: whatever would be lost

	InputEnter     uint64 = 1 // press Enter after the text
	InputIfWaiting uint64 = 2 // only while the agent waits for input
	InputResume    uint64 = 4 // resume a suspended session first

	CaptureEscapes uint64 = 1 // keep escape sequences
)

// MaxCapture bounds what Capture returns, in bytes.
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

// SessionRowEx is one row of ListSessionsEx: what a table of sessions shows. Times are
// CLOCK_REALTIME microseconds, 0 where there is none.
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
	StateChange uint64 // of its creation, where its state never changed
	ActiveSince uint64 // since when it is idle; else when it was last active, as far as that is known
	Leftovers   uint32 // processes that the agent left behind; 0 while it lives
	OnLogin     string
	Path        dbus.ObjectPath
	More        map[string]dbus.Variant // what later versions added, each where there is something: see the XML
}

// AgentRow is one row of ListAgents. Details has Available b, Resumable b, Command as,
// ResumeCommand as, Source s.
type AgentRow struct {
	Name        string
	Description string
	Details     map[string]dbus.Variant
}

// Stray is one row of ListStrays: a process of a session that is outside of its scope.
type Stray struct {
	Session      string // its id
	PID          uint32
	ControlGroup string // where it is
	Name         string // the process's, as the kernel has it: 15 bytes at most
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

// Problem is one entry of Problems. Session is the id of the session that it is about, "" for the
// daemon itself.
type Problem struct {
	Session string
	Text    string
}

// Explanation is one row of Explain. Time is CLOCK_REALTIME microseconds, 0 where there is none.
type Explanation struct {
	Subject string // state, activity or attention
	Source  string // what told it
	Time    uint64
	Value   string
}

// Variable is one row of GetEnvironment: the name of a variable, and where it comes from.
type Variable struct {
	Name   string
	Source string // manager, login-shell, corral, definition, file, caller, session
}

// UnitProperty is one entry of UnitProperties: a property of the session's scope, as systemd's
// StartTransientUnit takes it.
type UnitProperty struct {
	Name  string
	Value dbus.Variant
}

// SessionPath returns the object path of the session with this id: the id escaped as systemd's
// bus_label_escape does.
func SessionPath(id string) dbus.ObjectPath {
	return SessionsPath + "/" + dbus.ObjectPath(escapeLabel(id))
}

// SessionID returns the id of the session at this object path, and whether the path is that of a
// session.
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
