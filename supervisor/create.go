package supervisor

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/supervisor/session"
)

// Limits of what a client can put into a session.
const (
	maxArguments   = 1 << 20 // bytes of a command, or of an environment
	maxDescription = 1 << 10 // bytes
	maxPrompt      = 1 << 20 // bytes
	maxBranch      = 200     // bytes: its last part is the name of a file
	maxLabels      = 64
	maxLabel       = 1 << 10 // bytes of a label's name and value together

	maxProperties   = 256
	maxPropertySize = 64 << 10 // bytes of their names and values together
)

// Spec is what a client asks for. Zero values are defaults.
type Spec struct {
	ID                string
	Description       string
	Command           []string // replaces the agent's
	Arguments         []string // follow the agent's own, of a fresh run
	WorkingDirectory  string   // default: the home directory
	Environment       []string // NAME=VALUE, for every run; it is kept
	Prompt            string
	Labels            map[string]string
	NoStart           bool
	OnLogin           string // ignore, resume, start
	Exclusive         bool
	ConversationID    string
	UnitProperties    []session.Property
	CallerEnvironment []string // NAME=VALUE: that of whoever asks, for the run that begins with this and no other; it is not kept
	Worktree          *string  // the branch of a git worktree that is made for the session, "" for one of its own; nil for none

	workspace string            // what WorkingDirectory leads to
	inode     session.Inode     // of that
	reserved  bool              // its ID is held for it
	worktree  *session.Worktree // that was made
}

// Create makes a session and, unless the spec says otherwise, starts it and waits until its agent runs. A session whose agent could not be
// started is there all the same, failed, and the error says why. Errors: NoSuchAgent, AgentNotInstalled, SessionExists, WorkspaceMissing,
// WorkspaceBusy, ConversationBusy, TooManySessions, Invalid, OverLimit, StartFailed, ShuttingDown.
func (s *Supervisor) Create(ctx context.Context, agent string, spec Spec) (id string, err error) {
	if err := s.check(&spec); err != nil {
		return "", err
	}
	if err := s.installed(ctx, agent, &spec); err != nil {
		return "", err
	}
	if spec.Worktree != nil {
		return s.createInWorktree(ctx, agent, spec)
	}
	return s.createNow(ctx, agent, spec)
}

// createNow is Create once everything is checked. The id is "" if there is no such session.
func (s *Supervisor) createNow(ctx context.Context, agent string, spec Spec) (id string, err error) {
	var reply <-chan error
	if e := s.do(func() {
		var e *entry
		if e, err = s.create(agent, spec); err != nil {
			return
		}
		id = e.rec.ID
		ready := func(*entry) bool { return true }
		if !spec.NoStart {
			s.start(e, false, spec.CallerEnvironment)
			ready = started
		}
		reply = s.wait(e, ready, s.startError)
	}); e != nil {
		return "", e
	}
	if err != nil {
		return "", err
	}
	accepted(ctx)
	return id, s.await(ctx, reply)
}

// check refuses what cannot be, before anything is made. It asks the file system, and so is not done by the loop.
func (s *Supervisor) check(spec *Spec) error {
	if spec.ID != "" && !config.ValidName(spec.ID) {
		return refuse(Invalid, "invalid Id %s: expected a-z, 0-9, '.', '_' and '-', beginning with a letter or digit, "+
			"not ending in '.' or '-', and at most 64 bytes", brief(spec.ID))
	}
	if spec.WorkingDirectory == "" {
		spec.WorkingDirectory = s.Home
	}
	if err := checkTexts(spec); err != nil {
		return err
	}
	if err := checkWorkspace(spec.WorkingDirectory); err != nil {
		return err
	}
	spec.workspace, spec.inode = resolve(spec.WorkingDirectory), inodeOf(spec.WorkingDirectory)
	return nil
}

func checkTexts(spec *Spec) error {
	for _, f := range []struct {
		name string
		max  int
		all  []string
	}{
		{"WorkingDirectory", 4096, []string{spec.WorkingDirectory}},
		{"Command", maxArguments, spec.Command},
		{"Arguments", maxArguments, spec.Arguments},
		{"Environment", maxArguments, spec.Environment},
		{"CallerEnvironment", maxArguments, spec.CallerEnvironment},
		{"Description", maxDescription, []string{spec.Description}},
		{"Prompt", maxPrompt, []string{spec.Prompt}},
		{"ConversationId", 128, []string{spec.ConversationID}},
	} {
		size := 0
		for _, text := range f.all {
			size += len(text) + 1
			if strings.ContainsRune(text, 0) {
				return refuse(Invalid, "%s contains a NUL byte", f.name)
			}
			if !utf8.ValidString(text) { // as a home directory may be, which a client has not named
				return refuse(Invalid, "invalid %s %s: expected UTF-8", f.name, brief(text))
			}
		}
		if size > f.max+1 {
			return refuse(OverLimit, "%s is longer than %d bytes", f.name, f.max)
		}
	}
	if spec.Worktree != nil && len(*spec.Worktree) > maxBranch {
		return refuse(OverLimit, "Worktree is longer than %d bytes", maxBranch)
	}
	for _, entry := range spec.Environment {
		if i := strings.IndexByte(entry, '='); i <= 0 {
			return refuse(Invalid, "Environment has an entry that is not NAME=VALUE: %s", brief(entry))
		}
	}
	switch {
	case len(spec.Command) > 0 && spec.Command[0] == "":
		return refuse(Invalid, "invalid Command: its first element is empty")
	case len(spec.Command) > 0 && len(spec.Arguments) > 0:
		return refuse(Invalid, "Arguments and Command exclude each other")
	}
	if spec.ConversationID != "" && !config.ValidConversationID(spec.ConversationID) {
		return refuse(Invalid, "invalid ConversationId %s", brief(spec.ConversationID))
	}
	if err := checkProperties(spec.UnitProperties); err != nil {
		return err
	}
	return checkChoices(spec)
}

func checkChoices(spec *Spec) error {
	switch spec.OnLogin {
	case "":
		spec.OnLogin = session.Ignore
	case session.Ignore, "resume", "start":
	default:
		return refuse(Invalid, "invalid OnLogin %s: expected ignore, resume or start", brief(spec.OnLogin))
	}
	return CheckLabels(spec.Labels)
}

// CheckLabels refuses labels that are too many, too long, or have no name.
func CheckLabels(labels map[string]string) error {
	if len(labels) > maxLabels {
		return refuse(OverLimit, "too many labels: at most %d are allowed", maxLabels)
	}
	for name, value := range labels {
		if name == "" || len(name)+len(value) > maxLabel {
			return refuse(Invalid, "invalid label %s: expected a name, and at most %d bytes", brief(name), maxLabel)
		}
	}
	return nil
}

func checkWorkspace(dir string) error {
	if !filepath.IsAbs(dir) {
		return refuse(Invalid, "invalid WorkingDirectory %s: expected an absolute path", brief(dir))
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return refuse(WorkspaceMissing, "workspace %q does not exist", dir)
	case err != nil:
		return refuse(WorkspaceMissing, "cannot use workspace %q: %v", dir, errors.Unwrap(err))
	case !info.IsDir():
		return refuse(WorkspaceMissing, "workspace %q is not a directory", dir)
	}
	return nil
}

// brief quotes a text of a client's for a message.
func brief(text string) string {
	const most = 64
	if len(text) > most {
		return fmt.Sprintf("%q… (%d bytes)", text[:most], len(text))
	}
	return fmt.Sprintf("%q", text)
}

// creatable refuses a session that there cannot be, whatever its id is, on the loop.
func (s *Supervisor) creatable(agent string, spec Spec) (def config.Agent, err error) {
	if err := s.mayBegin(); err != nil {
		return def, err
	}
	def, known := s.Agents[agent]
	switch {
	case !known:
		return def, refuse(NoSuchAgent, "no such agent: %s", brief(agent))
	case len(spec.Command) == 0 && len(def.Command) == 0:
		return def, refuse(Invalid, "agent %q needs a Command", agent)
	case len(s.sessions)+len(s.reserved) > s.Config.MaxSessions, len(s.sessions)+len(s.reserved) == s.Config.MaxSessions && !spec.reserved:
		return def, refuse(TooManySessions, "there are %d sessions already, as many as MaxSessions= allows", len(s.sessions))
	}
	return def, nil
}

// create makes the session, on the loop.
func (s *Supervisor) create(agent string, spec Spec) (*entry, error) {
	def, err := s.creatable(agent, spec)
	if err != nil {
		return nil, err
	}
	id, err := s.chooseID(agent, spec)
	if err != nil {
		return nil, err
	}
	rec := newRecord(id, def, spec)
	if err := s.expand(rec, def, spec); err != nil {
		return nil, err
	}
	if !spec.NoStart {
		if err := s.free(rec, spotOf(rec)); err != nil {
			return nil, err
		}
		if err := s.unheld(rec, goesOn(rec, false)); err != nil {
			return nil, err
		}
	}
	if err := s.Records.Create(id); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil, refuse(SessionExists, "cannot create session %q: a directory is in the way: %s", id, s.Records.SessionDir(id))
		}
		return nil, err
	}
	e := &entry{rec: rec, unsaved: true}
	s.add(e)
	if spec.NoStart { // of any other it is watched from its start on
		s.watchWorkspace(e)
	}
	s.settleWorktree(e)
	return e, nil
}

func newRecord(id string, def config.Agent, spec Spec) *session.Session {
	return &session.Session{
		ID:               id,
		Agent:            def.Name,
		Description:      spec.Description,
		WorkingDirectory: spec.WorkingDirectory,
		Workspace:        spec.workspace,
		WorkspaceInode:   spec.inode,
		Environment:      slices.Clone(spec.Environment),
		Prompt:           spec.Prompt,
		Labels:           maps.Clone(spec.Labels),
		OnLogin:          spec.OnLogin,
		Exclusive:        spec.Exclusive,
		ConversationID:   spec.ConversationID,
		Defined:          len(spec.Command) == 0,
		Arguments:        slices.Clone(spec.Arguments),
		UnitProperties:   mergeProperties(nil, spec.UnitProperties),
		Created:          time.Now(),
		Worktree:         spec.worktree,
	}
}

// expand puts the session's own values into the agent's commands. What a client gave is taken as it is: no specifier in it means anything.
func (s *Supervisor) expand(rec *session.Session, def config.Agent, spec Spec) error {
	if rec.ConversationID == "" && (def.IdSource == config.IdPreset || def.IdSource == config.IdHistoryFile) {
		rec.ConversationID = newUUID()
	}
	sp := s.specifiers(rec)
	var err error
	rec.Command = slices.Clone(spec.Command)
	if !rec.Defined {
		return nil
	}
	expand := config.Expand
	if def.IdSource == config.IdCreate {
		expand = config.ExpandKnown // there is no id yet
	}
	if rec.Command, err = expand(def.Command, sp); err != nil {
		return refuse(ConfigError, "agent %q: Command: %v", def.Name, err)
	}
	rec.Command = append(rec.Command, spec.Arguments...)
	if len(def.ResumeCommand) > 0 && (rec.ConversationID != "" || !config.UsesConversation(def.ResumeCommand)) {
		if rec.ResumeCommand, err = config.Expand(def.ResumeCommand, sp); err != nil {
			return refuse(ConfigError, "agent %q: ResumeCommand: %v", def.Name, err)
		}
	}
	rec.Continues = continues(rec, def, spec)
	return nil
}

func (s *Supervisor) specifiers(rec *session.Session) config.Specifiers {
	return config.Specifiers{
		Conversation: rec.ConversationID,
		Session:      rec.ID,
		Workspace:    rec.WorkingDirectory,
		Runtime:      s.runtimeDir(rec.ID),
		Home:         s.Home,
		Share:        s.ShareDir,
	}
}

// runtimeDir is where the session's sockets are.
func (s *Supervisor) runtimeDir(id string) string { return filepath.Join(s.RuntimeDir, id) }

// chooseID takes the id that was asked for, or makes one from what baseOf returns: shop, shop-2, …
func (s *Supervisor) chooseID(agent string, spec Spec) (string, error) {
	if spec.ID != "" {
		if s.sessions[spec.ID] != nil || s.reserved[spec.ID] && !spec.reserved {
			return "", refuse(SessionExists, "session %q already exists", spec.ID)
		}
		// Agent a-b with session c, and agent a with session b-c, would have one scope.
		if e := s.units[UnitName(agent, spec.ID)]; e != nil {
			return "", refuse(SessionExists, "session %q would have the same unit as session %q: %s", spec.ID, e.rec.ID, UnitName(agent, spec.ID))
		}
		return spec.ID, nil
	}
	base := s.baseOf(agent, spec)
	for n := 1; ; n++ {
		id := base
		if n > 1 {
			suffix := fmt.Sprintf("-%d", n)
			id = strings.TrimRight(base[:min(len(base), 64-len(suffix))], ".-") + suffix
		}
		if s.sessions[id] != nil || s.units[UnitName(agent, id)] != nil || s.reserved[id] {
			continue
		}
		if _, err := os.Lstat(s.Records.SessionDir(id)); err == nil {
			continue // there is one of which no record tells that can be read
		}
		return id, nil
	}
}

// baseOf returns what a generated id begins with: the name of the branch that was asked for, else that of the workspace; in the home directory and in /, whose
// names say nothing about the work, that of the program.
func (s *Supervisor) baseOf(agent string, spec Spec) string {
	switch {
	case spec.Worktree != nil && *spec.Worktree != "":
		return idFrom(*spec.Worktree)
	case spec.workspace != "/" && spec.workspace != resolve(s.Home):
		return idFrom(filepath.Base(spec.WorkingDirectory))
	case len(spec.Command) > 0:
		return idFrom(filepath.Base(spec.Command[0]))
	}
	return idFrom(agent)
}

// idFrom makes an id of a name: letters in lower case, what an id cannot have as '-'.
func idFrom(name string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(name) {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
			b.WriteRune(r)
		case r < utf8.RuneSelf:
			b.WriteByte('-')
		}
	}
	id := strings.TrimLeft(b.String(), "._-")
	id = strings.TrimRight(id[:min(len(id), 64)], ".-")
	if id == "" {
		return "session"
	}
	return id
}

// newUUID returns a random UUID (RFC 9562, version 4).
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
