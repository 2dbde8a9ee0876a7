package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/corrald/corral/dbusapi/word"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/internal/unitname"
	"github.com/corrald/corral/supervisor/session"
)

// rebuild recreates the sessions whose records were lost while their agents run, or whose records
// are older than the current runs, like records restored from a backup. It returns the scopes as
// listed afterwards. Three sources have to agree on the identity of an agent: the name of its
// scope, its runtime directory, and its shim, whose Hello on the socket there names its own process
// and the agent's. A scope whose session cannot be rebuilt is logged and left alone.
func (a *adoption) rebuild(ctx context.Context, scopes []Scope) ([]Scope, error) {
	var units []string
	for _, sc := range scopes {
		e := a.loop.sessions.byUnit[sc.Name]
		if !sc.Active || e != nil && isScopeOf(e.rec.Run, sc) {
			continue
		}
		var err error
		if e != nil {
			err = a.addUnknownRun(e, sc)
		} else {
			err = a.rebuildSession(sc)
		}
		if err != nil {
			a.loop.log.Warn("a scope belongs to no session", "unit", sc.Name, "err", err)
			continue
		}
		units = append(units, sc.Name)
	}
	if len(units) == 0 {
		return scopes, nil
	}
	// As in listAndCompare: watch first, then list.
	if err := a.loop.system.Systemd.Watch(ctx, units...); err != nil {
		return nil, err
	}
	return a.loop.system.Systemd.Scopes(ctx)
}

// isScopeOf reports whether a scope is, or may be, that of the run, even if the run has lost it.
func isScopeOf(r *session.Run, sc Scope) bool {
	return r != nil && (r.InvocationID == sc.InvocationID || r.InvocationID == "" && r.Live())
}

// addUnknownRun adds to a session the current run, which its record does not contain.
func (a *adoption) addUnknownRun(e *entry, sc Scope) error {
	started, _, err := a.identifyAgent(sc, e.rec.ID)
	if err != nil {
		return err
	}
	if r := e.rec.Run; r != nil && r.ID == started.Run {
		return fmt.Errorf("session %q has lost its scope before", e.rec.ID)
	}
	a.applyRun(e.rec, sc, started)
	e.recordChanged()
	a.loop.log.Warn("the record of a session is older than its running scope; the scope is used",
		"session", e.rec.ID, "unit", sc.Name)
	return nil
}

// rebuildSession recreates the session of a scope, whose record was lost, and reports that as a
// problem.
func (a *adoption) rebuildSession(sc Scope) error {
	rec, err := a.recordFromScope(sc)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(a.loop.records.SessionDir(rec.ID), 0o700); err != nil {
		return err
	}
	e := newEntry(a.loop, rec)
	e.saving.unsaved = true
	a.loop.add(e)
	unknown := "description, labels, environment, unit properties and earlier runs"
	if rec.ConversationID == "" {
		unknown += ", and its conversation,"
	}
	a.loop.problems.add(Problem{Session: rec.ID, Text: "its record was lost and rebuilt from its running processes: " +
		"its command and workspace are those of its agent; its " + unknown + " are unknown; " +
		"check it, and create it again when its agent has ended"})
	a.loop.log.Warn("the record of a session was lost; rebuilt it from its running processes",
		"session", rec.ID, "unit", sc.Name)
	return nil
}

// recordFromScope returns a new record for the session of a scope.
func (a *adoption) recordFromScope(sc Scope) (*session.Session, error) {
	id, agent, err := a.identifySession(sc.Name)
	if err != nil {
		return nil, err
	}
	started, sandbox, err := a.identifyAgent(sc, id)
	if err != nil {
		return nil, err
	}
	command, dir, err := a.loop.system.Processes.CommandLine(started.Agent.PID)
	if err != nil {
		return nil, err
	}
	command, dir = asText(command, dir)
	rec := &session.Session{
		ID: id, Agent: agent, Command: command, WorkingDirectory: dir, Workspace: dir,
		OnLogin: word.Ignore, Created: started.At, Sandbox: sandbox,
	}
	a.applyRun(rec, sc, started)
	a.loop.settings.conversationRules(rec).RecordFromCommandLine()
	return rec, nil
}

// identifySession returns the id of the session and the name of the agent that the name of a scope
// contains. Both may contain '-': the right session is the one whose runtime directory contains a
// shim's socket.
func (a *adoption) identifySession(unit string) (id, agent string, err error) {
	agents, ids := unitname.SplitScope(unit)
	for i := range ids {
		if !config.ValidAgentName(agents[i]) || !config.ValidName(ids[i]) {
			continue
		}
		if _, err := os.Lstat(filepath.Join(a.loop.settings.runtimeDir(ids[i]), shimSocket)); err != nil {
			continue
		}
		if id != "" {
			return "", "", fmt.Errorf("it may belong to session %q or to session %q", id, ids[i])
		}
		agent, id = agents[i], ids[i]
	}
	switch {
	case id == "":
		return "", "", fmt.Errorf("no runtime directory in %q belongs to it", a.loop.settings.runDir)
	case a.loop.sessions.byID[id] != nil:
		return "", "", fmt.Errorf("session %q has another scope", id)
	}
	return id, agent, nil
}

// identifyAgent returns that the agent of a scope has started, as the shim that listens in the
// session's runtime directory reports it. It returns an error if the shim or its agent is outside
// of the scope. Sandbox is the agent's sandbox profile, "" for none.
func (a *adoption) identifyAgent(sc Scope, id string) (started session.AgentStarted, sandbox string, err error) {
	t := Target{ID: id, RuntimeDir: a.loop.settings.runtimeDir(id), Unit: sc.Name, ControlGroup: sc.ControlGroup}
	started, sandbox, err = a.readHello(t)
	if err != nil {
		return started, "", err
	}
	for _, pid := range []int{started.Shim.PID, started.Agent.PID} {
		group := a.loop.system.Processes.ControlGroup(pid)
		if sc.ControlGroup == "" || group != sc.ControlGroup && !strings.HasPrefix(group, sc.ControlGroup+"/") {
			return started, "", fmt.Errorf("its shim names process %d, which is in control group %q", pid, group)
		}
	}
	return started, sandbox, nil
}

// helloTimeout is how long a shim may take to send its Hello. The daemon starts to work only after
// that.
const helloTimeout = time.Second

// readHello connects to a shim, and returns its first message, a credible Hello, as an event.
func (a *adoption) readHello(t Target) (started session.AgentStarted, sandbox string, err error) {
	fd, shim, err := a.loop.system.Terminals.DialShim(t)
	if err != nil {
		return started, "", err
	}
	defer func() { _ = unix.Close(fd) }()
	limit := unix.NsecToTimeval(helloTimeout.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		return started, "", err
	}
	buf := make([]byte, shimwire.MaxMessage)
	n, err := unix.Read(fd, buf)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Read(fd, buf)
	}
	if err != nil {
		return started, "", fmt.Errorf("its shim does not answer: %w", err)
	}
	hello, err := shimwire.ParseMessage(buf[:n])
	if err != nil {
		return started, "", err
	}
	if hello.Kind != shimwire.Hello || hello.RunID == "" || hello.AgentPID == 0 ||
		!a.loop.isHelloCredible(hello, shim) {
		return started, "", errors.New("its shim does not identify itself")
	}
	return session.AgentStarted{
		Run: hello.RunID, Shim: shim,
		Agent: session.Process{PID: hello.AgentPID, Start: hello.AgentStart}, At: hello.Started,
	}, hello.Sandbox, nil
}

// asText converts the command and the working directory of a running agent to UTF-8, as records and
// the bus accept nothing else. An argument that is not UTF-8 is escaped as in a Go string. A
// directory whose path is not UTF-8 is replaced by the nearest one above it whose path is.
func asText(command []string, dir string) ([]string, string) {
	text := make([]string, len(command))
	for i, arg := range command {
		if text[i] = arg; !utf8.ValidString(arg) {
			quoted := strconv.Quote(arg)
			text[i] = quoted[1 : len(quoted)-1]
		}
	}
	for !utf8.ValidString(dir) {
		dir = filepath.Dir(dir)
	}
	return text, dir
}

// applyRun adds the run of an agent that was found to the record.
func (a *adoption) applyRun(rec *session.Session, sc Scope, started session.AgentStarted) {
	def := a.loop.settings.definition(rec)
	tool, network := a.loop.settings.sandboxTool(rec.Sandbox)
	rec.Apply(session.RunBegun{
		Run: started.Run, BootID: a.loop.settings.bootID, Unit: sc.Name,
		Notify: def.Type == config.TypeNotify, Sources: def.Status.Sources, At: started.At,
		SandboxTool: tool, SandboxNetwork: network,
	})
	rec.Apply(started)
}
