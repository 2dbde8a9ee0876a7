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

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/supervisor/session"
)

// rebuild makes the sessions anew whose records were lost while their agents live, or are older than the runs that their agents are in, as those of a backup are,
// and returns the scopes as they are then. Who an agent is three have to agree on: the name of its scope, its runtime directory, and its shim, which says on its
// socket there which processes it and its agent are. What cannot be made anew is told in the journal and left alone.
func (s *Supervisor) rebuild(ctx context.Context, scopes []Scope) ([]Scope, error) {
	var units []string
	for _, sc := range scopes {
		e := s.units[sc.Name]
		if !sc.Active || e != nil && knows(e.rec.Run, sc) {
			continue
		}
		var err error
		if e != nil {
			err = s.renew(e, sc)
		} else {
			err = s.takeInLost(sc)
		}
		if err != nil {
			s.Log.Warn("a scope belongs to no session", "unit", sc.Name, "err", err)
			continue
		}
		units = append(units, sc.Name)
	}
	if len(units) == 0 {
		return scopes, nil
	}
	// As with the others: watched first, then listed.
	if err := s.World.Watch(ctx, units); err != nil {
		return nil, err
	}
	return s.World.Scopes(ctx)
}

// knows tells whether a scope is that of the run, which has lost it or not, or may be.
func knows(r *session.Run, sc Scope) bool {
	return r != nil && (r.InvocationID == sc.InvocationID || r.InvocationID == "" && r.Live())
}

// renew notes the run that a session is in, of which its record does not know.
func (s *Supervisor) renew(e *entry, sc Scope) error {
	hello, shim, err := s.speaker(sc, e.rec.ID)
	if err != nil {
		return err
	}
	if r := e.rec.Run; r != nil && r.ID == hello.RunID {
		return fmt.Errorf("session %q has lost its scope before", e.rec.ID)
	}
	s.runs(e.rec, sc, hello, shim)
	e.unsaved = true
	s.touch(e)
	s.Log.Warn("the record of a session is older than its running scope; the scope is used", "session", e.rec.ID, "unit", sc.Name)
	return nil
}

// takeInLost takes in the session whose scope this is, and whose record was lost.
func (s *Supervisor) takeInLost(sc Scope) error {
	rec, err := s.recordOf(sc)
	if err == nil {
		err = s.takeIn(rec)
	}
	if err == nil {
		s.Log.Warn("the record of a session was lost; rebuilt it from its running processes", "session", rec.ID, "unit", sc.Name)
	}
	return err
}

// takeIn takes in a session that was made anew.
func (s *Supervisor) takeIn(rec *session.Session) error {
	dir := s.Records.SessionDir(rec.ID)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	s.add(&entry{rec: rec, unsaved: true})
	unknown := "description, labels, environment, unit properties and earlier runs"
	if rec.ConversationID == "" {
		unknown += ", and its conversation,"
	}
	s.Found(Problem{Session: rec.ID, Text: "its record was lost and rebuilt from its running processes: its command and workspace are those of its agent; its " +
		unknown + " are unknown; check it, and create it again when its agent has ended"})
	return nil
}

// recordOf makes the record of the session whose scope this is.
func (s *Supervisor) recordOf(sc Scope) (*session.Session, error) {
	id, agent, err := s.whose(sc.Name)
	if err != nil {
		return nil, err
	}
	hello, shim, err := s.speaker(sc, id)
	if err != nil {
		return nil, err
	}
	command, dir, err := s.World.Shown(hello.AgentPID)
	if err != nil {
		return nil, err
	}
	command, dir = asText(command, dir)
	rec := &session.Session{
		ID: id, Agent: agent, Command: command, WorkingDirectory: dir, Workspace: dir, OnLogin: session.Ignore, Created: hello.Started,
	}
	s.runs(rec, sc, hello, shim)
	s.recall(rec)
	return rec, nil
}

// runs notes the run that a session's shim speaks of.
func (s *Supervisor) runs(rec *session.Session, sc Scope, hello shimwire.Message, shim session.Process) {
	def := s.Agents[rec.Agent]
	rec.Apply(session.RunAsked{
		Run: hello.RunID, BootID: s.BootID, Unit: sc.Name, Notify: def.Type == config.TypeNotify, Sources: def.Status.Sources, At: hello.Started,
	})
	rec.Apply(session.AgentStarted{
		Run: hello.RunID, Shim: shim, Agent: session.Process{PID: hello.AgentPID, Start: hello.AgentStart}, At: hello.Started,
	})
}

// speaker returns what the shim in a session's runtime directory says of itself, and which process it is, if it and its agent are in the scope.
func (s *Supervisor) speaker(sc Scope, id string) (hello shimwire.Message, shim session.Process, err error) {
	hello, shim, err = s.greet(Target{ID: id, RuntimeDir: s.runtimeDir(id), Unit: sc.Name, ControlGroup: sc.ControlGroup})
	if err != nil {
		return hello, shim, err
	}
	for _, pid := range []int{hello.ShimPID, hello.AgentPID} {
		if group := s.World.ControlGroup(pid); sc.ControlGroup == "" || group != sc.ControlGroup && !strings.HasPrefix(group, sc.ControlGroup+"/") {
			return hello, shim, fmt.Errorf("its shim names process %d, which is in control group %q", pid, group)
		}
	}
	return hello, shim, nil
}

// recall finds out from what the agent was executed with, if that is to be seen, which conversation it has: then it can be resumed as before.
func (s *Supervisor) recall(rec *session.Session) {
	def := s.Agents[rec.Agent]
	id := def.FindConversation(rec.Command, s.specifiers(rec))
	if id == "" {
		return
	}
	rec.Defined = true
	rec.Apply(session.Conversed{Run: rec.Run.ID, ID: id, From: session.Given, Resume: s.resumeCommand(rec, id), At: rec.Run.Asked})
}

// asText makes of what an agent shows of itself what can be kept in a record and told on a bus, which take UTF-8 alone. Bytes of the command that are none are
// written as in a string of Go's, and the workspace is the nearest directory on its way that has such a name.
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

// whose returns the session and the agent that a scope's name tells of. Both may have a '-' in them: the session is the one that has a runtime directory with
// a shim's socket in it.
func (s *Supervisor) whose(unit string) (id, agent string, err error) {
	name, begins := strings.CutPrefix(unit, "app-corral-")
	name, ends := strings.CutSuffix(name, ".scope")
	for i := range len(name) {
		if !begins || !ends || name[i] != '-' || !config.ValidName(name[:i]) || !config.ValidName(name[i+1:]) {
			continue
		}
		if _, err := os.Lstat(filepath.Join(s.runtimeDir(name[i+1:]), shimSocket)); err != nil {
			continue
		}
		if id != "" {
			return "", "", fmt.Errorf("it may belong to session %q or to session %q", id, name[i+1:])
		}
		agent, id = name[:i], name[i+1:]
	}
	switch {
	case id == "":
		return "", "", fmt.Errorf("no runtime directory in %q belongs to it", s.RuntimeDir)
	case s.sessions[id] != nil:
		return "", "", fmt.Errorf("session %q has another scope", id)
	}
	return id, agent, nil
}

// helloTime is how long a shim may take to say who it is, before the daemon begins its work.
const helloTime = time.Second

// greet connects to a shim and returns what it says of itself first.
func (s *Supervisor) greet(t Target) (hello shimwire.Message, shim session.Process, err error) {
	fd, shim, err := s.World.DialShim(t)
	if err != nil {
		return hello, shim, err
	}
	defer func() { _ = unix.Close(fd) }()
	limit := unix.NsecToTimeval(helloTime.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		return hello, shim, err
	}
	buf := make([]byte, shimwire.MaxMessage)
	n, err := unix.Read(fd, buf)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Read(fd, buf)
	}
	if err != nil {
		return hello, shim, fmt.Errorf("its shim does not answer: %w", err)
	}
	hello, err = shimwire.ParseMessage(buf[:n])
	if err == nil && (hello.Kind != shimwire.Hello || hello.RunID == "" || hello.AgentPID == 0 || !s.isTrue(hello, shim)) {
		err = errors.New("its shim does not identify itself")
	}
	return hello, shim, err
}
