package supervisor

import (
	"slices"
	"strings"

	"github.com/corrald/corral/supervisor/conversations"
	"github.com/corrald/corral/supervisor/session"
)

// completeFork completes the spec of a session whose conversation begins as a copy of that of the
// session spec.ForkedFrom. It sets the defaults that this session determines: the workspace, the
// sandbox, and the environment of every run, on which the place of the agent's conversations may
// depend. Errors: NoSuchSession, NoSuchAgent, Invalid, Unsupported, NotResumable.
func (c *creation) completeFork(agent string, spec *Spec) error {
	if spec.ForkedFrom == "" {
		return nil
	}
	if len(spec.Command) > 0 || spec.ConversationID != "" {
		return refuse(Invalid, "ForkedFrom excludes Command and ConversationId")
	}
	return c.loop.doWith(spec.ForkedFrom, func(e *entry) error {
		source := e.rec
		def, known := c.loop.settings.agents.Find(agent)
		switch {
		case !known:
			return refuse(NoSuchAgent, "no such agent: %s", brief(agent))
		case !conversations.IsSameAgent(&session.Session{Agent: agent, ResumeCommand: def.ResumeCommand}, source):
			return refuse(Invalid, "cannot fork session %q with agent %q: its conversation is one of agent %q",
				source.ID, agent, source.Agent)
		case len(def.ForkCommand) == 0:
			return refuse(Unsupported, "cannot fork session %q: the definition of agent %q has no ForkCommand=; "+
				"see corral.agent(5)", source.ID, agent)
		case source.ConversationID == "":
			return refuse(NotResumable, "cannot fork session %q: its conversation is not known yet", source.ID)
		}
		if spec.WorkingDirectory == "" {
			spec.WorkingDirectory = source.WorkingDirectory
		}
		if def.NoForkElsewhere && (spec.Worktree != nil || spec.WorkingDirectory != source.WorkingDirectory) {
			return refuse(Unsupported, "cannot fork session %q: agent %q copies a conversation only in its workspace: %q",
				source.ID, agent, source.WorkingDirectory)
		}
		if spec.Sandbox == "" { // a conversation in a sandbox must not continue outside unnoticed
			spec.Sandbox = source.Sandbox
		}
		spec.determined.fork = &session.Fork{From: source.ID, Conversation: source.ConversationID}
		inherited := slices.DeleteFunc(slices.Clone(source.Environment), func(entry string) bool {
			name, _, _ := strings.Cut(entry, "=")
			return slices.ContainsFunc(spec.Environment, func(own string) bool { return strings.HasPrefix(own, name+"=") })
		})
		spec.Environment = append(inherited, spec.Environment...)
		return nil
	})
}
