package supervisor

import (
	"context"
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

	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/program"
	"github.com/corrald/corral/internal/unitname"
	"github.com/corrald/corral/supervisor/conversations"
	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/supervisor/workspaces"
)

// Spec is a session as a client specifies it. Zero values select defaults.
type Spec struct {
	ID               string
	Description      string
	Command          []string // replaces the agent's command
	Arguments        []string // appended to the agent's command, for fresh runs
	WorkingDirectory string   // default: the home directory
	Environment      []string // NAME=VALUE, for every run; it is stored
	Prompt           string
	Labels           map[string]string
	NoStart          bool
	OnLogin          string // ignore, resume, start
	Exclusive        bool
	ConversationID   string
	ForkedFrom       string // id of the session whose conversation is copied
	UnitProperties   []session.Property
	// CallerEnvironment is the environment of the client, NAME=VALUE, for the run that Create starts
	// and no later one. It is not stored.
	CallerEnvironment []string
	// Sandbox is the name of a sandbox profile, config.NoSandbox for none; "" for that in the agent's
	// definition.
	Sandbox string
	Now     bool   // start it even if MaxRunning= does not permit it
	Parent  string // id of the session in which the client is, "" if it is in none
	// Worktree is the branch of a git worktree that is created for the session, "" for a branch of
	// its own; nil for no worktree.
	Worktree *string
	// Ports is the number of TCP ports to reserve, nil for the number that is configured for the
	// repository.
	Ports *uint32
	// NoSetup is whether the worktree is not set up.
	NoSetup bool

	determined determined
}

// determined is what Create determines of a session besides what a client specifies.
type determined struct {
	workspace string            // resolved path of WorkingDirectory
	inode     session.Inode     // of that directory
	idBase    string            // the beginning of a generated id
	reserved  bool              // its ID is in creation.reserved
	worktree  *session.Worktree // the worktree that was created for it
	fork      *session.Fork     // the conversation that is copied

	repository config.Repository  // of the worktree
	setup      session.SetupPhase // of the worktree
}

// Limits of the values that a client specifies for a session.
const (
	maxArguments   = 1 << 20 // bytes of a command, or of an environment
	maxDescription = 1 << 10 // bytes
	maxPrompt      = 1 << 20 // bytes
	maxBranch      = 200     // bytes: its last part is the name of a file
	maxLabels      = 64
	maxLabel       = 1 << 10 // bytes of a label's name and value together
)

// creation creates sessions.
type creation struct {
	loop      *loop
	worktrees *worktrees
	reserved  map[string]bool // ids of sessions that are about to be created; it belongs to the event loop
}

// Create creates a session and, unless NoStart is set, starts it and waits until its agent runs, or
// until it is queued because MaxRunning= does not permit it to run yet. If the agent could not be
// started, the session exists nevertheless, as failed, and Create returns the reason. Errors:
// NoSuchAgent, AgentNotInstalled, SessionExists, WorkspaceMissing, WorkspaceBusy, ConversationBusy,
// TooManySessions, Invalid, OverLimit, StartFailed, ShuttingDown.
func (s *Supervisor) Create(ctx context.Context, agent string, spec Spec) (id string, err error) {
	c := &s.loop.operations.creation
	if err := c.completeFork(agent, &spec); err != nil {
		return "", err
	}
	if err := c.checkSpec(agent, &spec); err != nil {
		return "", err
	}
	if err := c.checkInstalled(ctx, agent, &spec); err != nil {
		return "", err
	}
	if spec.Worktree != nil {
		return c.createInWorktree(ctx, agent, spec)
	}
	return c.createChecked(ctx, agent, spec)
}

// checkSpec completes the spec and returns an error if it is invalid, before anything is created.
// It examines the file system and is therefore not called on the event loop.
func (c *creation) checkSpec(agent string, spec *Spec) error {
	if spec.ID != "" && !config.ValidName(spec.ID) {
		return refuse(Invalid, "invalid Id %s: expected a-z, 0-9, '.', '_' and '-', beginning with a letter or digit, "+
			"not ending in '.' or '-', and at most 64 bytes", brief(spec.ID))
	}
	if spec.WorkingDirectory == "" {
		spec.WorkingDirectory = c.loop.settings.home
	}
	if err := checkTexts(spec); err != nil {
		return err
	}
	dir := spec.WorkingDirectory
	if !filepath.IsAbs(dir) {
		return refuse(Invalid, "invalid WorkingDirectory %s: expected an absolute path", brief(dir))
	}
	if err := program.CheckWorkspace(dir); err != nil {
		return refuse(WorkspaceMissing, "%v", err)
	}
	spec.determined.workspace, spec.determined.inode = workspaces.Resolve(dir), workspaces.InodeOf(dir)
	spec.determined.idBase = c.idBase(agent, *spec)
	return nil
}

// checkTexts returns an error for a value that is too long or invalid. Errors: Invalid, OverLimit.
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
			if !utf8.ValidString(text) { // possible for a home directory, which is not specified by a client
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
	if err := checkPortCount(spec.Ports); err != nil {
		return err
	}
	for _, entry := range spec.Environment {
		if i := strings.IndexByte(entry, '='); i <= 0 {
			return refuse(Invalid, "invalid Environment entry %s: expected NAME=VALUE", brief(entry))
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

// checkChoices sets the default of OnLogin, and returns an error if its value or a label is
// invalid.
func checkChoices(spec *Spec) error {
	switch spec.OnLogin {
	case "":
		spec.OnLogin = word.Ignore
	case word.Ignore, word.Resume, word.Start:
	default:
		return refuse(Invalid, "invalid OnLogin %s: expected ignore, resume or start", brief(spec.OnLogin))
	}
	return checkLabels(spec.Labels)
}

// checkLabels returns an error if there are too many labels, or one is too long or has no name.
// Errors: Invalid, OverLimit.
func checkLabels(labels map[string]string) error {
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

// createChecked is Create after everything is checked. The id is "" if no session was created.
func (c *creation) createChecked(ctx context.Context, agent string, spec Spec) (id string, err error) {
	var reply <-chan error
	if err := c.loop.try(func() error {
		c.loop.sessions.queue.beginAll()
		e, err := c.create(agent, spec)
		if err != nil {
			return err
		}
		id = e.rec.ID
		if spec.NoStart {
			reply = e.whenPublished()
		} else {
			claimed := claim{callerEnvironment: spec.CallerEnvironment}
			reply = c.loop.sessions.queue.beginOrAdd(e, session.OpStart, claimed, spec.Now)
		}
		return nil
	}); err != nil {
		return "", err
	}
	accepted(ctx)
	return id, c.loop.awaitReply(ctx, reply)
}

// create creates the session, without starting it. It is called on the event loop.
func (c *creation) create(agent string, spec Spec) (*entry, error) {
	def, err := c.checkCreatable(agent, spec)
	if err != nil {
		return nil, err
	}
	id, err := c.chooseID(agent, spec)
	if err != nil {
		return nil, err
	}
	rec := newRecord(id, def, spec)
	if rec.Sandbox, err = c.loop.settings.chooseSandbox(def, spec.Sandbox); err != nil {
		return nil, err
	}
	if rec.Ports, err = c.loop.reservePorts(id, spec.countPorts(), spec.determined.repository.PortVariable); err != nil {
		return nil, err
	}
	if err := c.loop.settings.conversationRules(rec).SetCommands(); err != nil {
		return nil, refuse(ConfigError, "agent %q: %v", def.Name, err)
	}
	if !spec.NoStart {
		if err := c.loop.checkWorkspaceFree(rec, workspaces.LastDirectory(rec)); err != nil {
			return nil, err
		}
		if err := c.loop.checkConversationFree(rec, conversations.Continues(rec, false)); err != nil {
			return nil, err
		}
	}
	if err := c.loop.records.Create(id); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil, refuse(SessionExists, "cannot create session %q: a directory is in the way: %s",
				id, c.loop.records.SessionDir(id))
		}
		return nil, err
	}
	e := newEntry(c.loop, rec)
	e.saving.unsaved = true
	c.loop.add(e)
	if spec.NoStart { // otherwise the start begins to watch it
		e.watchWorkspace()
	}
	c.worktrees.confirm(e)
	return e, nil
}

// checkCreatable returns the agent's definition, or an error if the session cannot be created,
// regardless of its id. It is called on the event loop.
func (c *creation) checkCreatable(agent string, spec Spec) (def config.Agent, err error) {
	if err := c.loop.shutdown.check(); err != nil {
		return def, err
	}
	def, known := c.loop.settings.agents.Find(agent)
	count, limit := len(c.loop.sessions.byID)+len(c.reserved), c.loop.settings.config.MaxSessions
	switch {
	case !known:
		return def, refuse(NoSuchAgent, "no such agent: %s", brief(agent))
	case len(spec.Command) == 0 && len(def.Command) == 0:
		return def, refuse(Invalid, "agent %q needs a Command", agent)
	case count > limit, count == limit && !spec.determined.reserved:
		return def, refuse(TooManySessions,
			"there are %d sessions already, as many as MaxSessions= allows", len(c.loop.sessions.byID))
	}
	return def, nil
}

// chooseID returns the id that the client has specified, or generates one from its idBase: shop,
// shop-2, … It is called on the event loop. Errors: SessionExists.
func (c *creation) chooseID(agent string, spec Spec) (string, error) {
	if spec.ID != "" {
		if c.loop.sessions.byID[spec.ID] != nil || c.reserved[spec.ID] && !spec.determined.reserved {
			return "", refuse(SessionExists, "session %q already exists", spec.ID)
		}
		// Agent a-b with session c, and agent a with session b-c, would have one scope.
		if e := c.loop.sessions.byUnit[unitname.Scope(agent, spec.ID)]; e != nil {
			return "", refuse(SessionExists, "session %q would have the same unit as session %q: %s",
				spec.ID, e.rec.ID, unitname.Scope(agent, spec.ID))
		}
		return spec.ID, nil
	}
	for n := 1; ; n++ {
		id := spec.determined.idBase
		if n > 1 {
			suffix := fmt.Sprintf("-%d", n)
			id = strings.TrimRight(id[:min(len(id), 64-len(suffix))], ".-") + suffix
		}
		if c.loop.sessions.byID[id] != nil || c.loop.sessions.byUnit[unitname.Scope(agent, id)] != nil || c.reserved[id] {
			continue
		}
		if _, err := os.Lstat(c.loop.records.SessionDir(id)); err == nil {
			continue // the directory of a session whose record cannot be read
		}
		return id, nil
	}
}

// idBase returns the beginning of a generated id: the name of the specified branch, otherwise that
// of the workspace. For the home directory and /, whose names do not describe the work, it is the
// name of the program. It examines the file system and is therefore not called on the event loop.
func (c *creation) idBase(agent string, spec Spec) string {
	switch {
	case spec.Worktree != nil && *spec.Worktree != "":
		return idFrom(*spec.Worktree)
	case spec.determined.workspace != "/" && spec.determined.workspace != workspaces.Resolve(c.loop.settings.home):
		return idFrom(filepath.Base(spec.WorkingDirectory))
	case len(spec.Command) > 0:
		return idFrom(filepath.Base(spec.Command[0]))
	}
	return idFrom(agent)
}

// idFrom converts a name to an id: letters to lower case, ASCII characters that an id cannot
// contain to '-'; others are dropped.
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

// newRecord returns the record of a new session, as the client has specified it.
func newRecord(id string, def config.Agent, spec Spec) *session.Session {
	return &session.Session{
		ID:               id,
		Agent:            def.Name,
		Description:      spec.Description,
		WorkingDirectory: spec.WorkingDirectory,
		Workspace:        spec.determined.workspace,
		WorkspaceInode:   spec.determined.inode,
		Environment:      slices.Clone(spec.Environment),
		Prompt:           spec.Prompt,
		Labels:           maps.Clone(spec.Labels),
		OnLogin:          spec.OnLogin,
		Exclusive:        spec.Exclusive,
		ConversationID:   spec.ConversationID,
		Command:          slices.Clone(spec.Command),
		Defined:          len(spec.Command) == 0,
		Arguments:        slices.Clone(spec.Arguments),
		UnitProperties:   mergeProperties(nil, spec.UnitProperties),
		Created:          time.Now(),
		Worktree:         spec.determined.worktree,
		Parent:           spec.Parent,
		Fork:             spec.determined.fork,
		Setup:            session.Setup{Phase: spec.determined.setup},
	}
}
