package conversations

import (
	"regexp"
	"testing"
	"time"

	"github.com/corrald/corral/dbusapi/word"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/supervisor/session"
)

// definition returns an agent's definition with this IdSource=.
func definition(source string) config.Agent {
	def := config.Agent{
		Name: "a", Command: []string{"a"}, ResumeCommand: []string{"a", "-r", "%U"}, IdSource: source,
	}
	if source != config.IdReport {
		def.Command = []string{"a", "%U"}
	}
	return def
}

// began is when the runs of these tests began.
var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const uuid = `^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`

func TestSetCommands(t *testing.T) {
	saves := definition(config.IdPreset)
	saves.ResumeCondition = []string{"%h/%U"}
	for name, c := range map[string]struct {
		def             config.Agent
		specified       string
		arguments       []string
		command, resume []string // %U is the id in the record
		continues       bool
	}{
		"a generated id": {
			definition(config.IdPreset), "", nil, []string{"a", "%U"}, []string{"a", "-r", "%U"}, false,
		},
		"arguments are not expanded": {
			definition(config.IdPreset), "c", []string{"%i", "x"},
			[]string{"a", "c", "%i", "x"}, []string{"a", "-r", "c"}, false,
		},
		"a specified id that may have been saved": {
			saves, "c", nil, []string{"a", "c"}, []string{"a", "-r", "c"}, true,
		},
		"a generated id that may have been saved": {
			saves, "", nil, []string{"a", "%U"}, []string{"a", "-r", "%U"}, false,
		},
		"an id that is still to be created": {
			definition(config.IdCreate), "", nil, []string{"a", "%U"}, nil, false,
		},
		"an id that the agent chooses": {definition(config.IdReport), "", nil, []string{"a"}, nil, false},
		"the specified id of an agent that chooses it": {
			definition(config.IdReport), "c", nil, []string{"a"}, []string{"a", "-r", "c"}, true,
		},
		"a resume that needs no id": {
			config.Agent{Command: []string{"a"}, ResumeCommand: []string{"a", "--last"}},
			"", nil, []string{"a"}, []string{"a", "--last"}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			rec := &session.Session{ID: "shop", Defined: true, ConversationID: c.specified, Arguments: c.arguments}
			require.NoError(t, Rules{Session: rec, Definition: c.def, Values: config.Specifiers{Session: "shop"}}.SetCommands())
			id := rec.ConversationID
			switch {
			case c.specified != "":
				assert.Equal(t, c.specified, id)
			case c.def.IdSource == config.IdPreset:
				assert.Regexp(t, uuid, id)
			default:
				assert.Empty(t, id)
			}
			expand := func(args []string) []string {
				expanded, err := config.ExpandKnown(args, config.Specifiers{Conversation: id})
				require.NoError(t, err)
				return append([]string(nil), expanded...)
			}
			assert.Equal(t, expand(c.command), rec.Command)
			assert.Equal(t, expand(c.resume), rec.ResumeCommand)
			assert.Equal(t, c.continues, rec.Continues)
		})
	}

	own := &session.Session{Command: []string{"mine", "%U"}}
	require.NoError(t, Rules{Session: own, Definition: definition(config.IdPreset)}.SetCommands())
	assert.Equal(t, []string{"mine", "%U"}, own.Command)
	assert.Nil(t, own.ResumeCommand)
	assert.Regexp(t, uuid, own.ConversationID)

	for text, def := range map[string]config.Agent{
		`Command: cannot expand "%U"`:       {Command: []string{"%U"}},
		`ResumeCommand: cannot expand "%i"`: {Command: []string{"a"}, ResumeCommand: []string{"%i"}},
	} {
		err := Rules{Session: &session.Session{Defined: true}, Definition: def}.SetCommands()
		assert.ErrorContains(t, err, text)
	}
}

func TestAssignID(t *testing.T) {
	const generated = "generated"
	used := &session.Run{Started: began, Conversation: "c"}
	for name, c := range map[string]struct {
		source  string
		rec     session.Session
		resumed bool
		known   string
		id      string
		create  bool
	}{
		"first run": {config.IdPreset, session.Session{Defined: true, ConversationID: "c"}, false, "c", "c", false},
		"a second fresh run": {
			config.IdPreset, session.Session{Defined: true, ConversationID: "c", Run: used}, false, "", generated, false,
		},
		"a second fresh run in a file": {
			config.IdHistoryFile, session.Session{Defined: true, ConversationID: "c", Run: used}, false, "", generated, false,
		},
		"a resumed run": {
			config.IdPreset, session.Session{Defined: true, ConversationID: "c", Run: used, ResumeCommand: []string{"a"}},
			true, "c", "c", false,
		},
		"a resumed run without a command for it": {
			config.IdPreset, session.Session{Defined: true, ConversationID: "c", Run: used}, true, "", generated, false,
		},
		"IdCommand= creates the id": {
			config.IdCreate, session.Session{Defined: true, ConversationID: "c", Run: used}, false, "", "", true,
		},
		"IdCommand= has created an id that no run has used": {
			config.IdCreate, session.Session{Defined: true, ConversationID: "c"}, false, "c", "c", false,
		},
		"the agent chooses the id": {
			config.IdReport, session.Session{Defined: true, ConversationID: "c", Run: used}, false, "", "", false,
		},
		"a command of the user": {
			config.IdPreset, session.Session{ConversationID: "c", Run: used}, false, "c", "c", false,
		},
		"a command of the user without an id": {config.IdCreate, session.Session{}, false, "", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			rules := Rules{Session: &c.rec, Definition: definition(c.source)}
			assert.Equal(t, c.known, rules.KnownID(c.resumed))
			id, create := rules.AssignID(c.resumed)
			assert.Equal(t, c.create, create)
			if c.id == generated {
				assert.Regexp(t, uuid, id)
			} else {
				assert.Equal(t, c.id, id)
			}
		})
	}
}

func TestCommands(t *testing.T) {
	rec := session.Session{
		Defined: true, ConversationID: "c", Arguments: []string{"%i"},
		Command: []string{"old", "c"}, ResumeCommand: []string{"old", "-r", "c"},
	}
	own, begins := rec, rec
	own.Defined, begins.ResumeCommand = false, nil
	for name, c := range map[string]struct {
		rec           session.Session
		def           config.Agent
		fresh, resume []string
	}{
		"those of the definition": {rec, definition(config.IdPreset), []string{"a", "c", "%i"}, []string{"a", "-r", "c"}},
		"no definition":           {rec, config.Agent{}, rec.Command, rec.ResumeCommand},
		"a definition that cannot be used": {
			rec, config.Agent{Command: []string{"%w"}, ResumeCommand: []string{"%w"}}, rec.Command, rec.ResumeCommand,
		},
		"a command of the user":  {own, definition(config.IdPreset), rec.Command, rec.ResumeCommand},
		"nothing that continues": {begins, config.Agent{Command: []string{"a"}}, []string{"a", "%i"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			rules := Rules{Session: &c.rec, Definition: c.def}
			assert.Equal(t, c.fresh, rules.FreshCommand())
			if c.resume == nil {
				assert.Nil(t, rules.Continuation())
			} else {
				assert.Equal(t, c.resume, rules.Continuation().Resume)
			}
		})
	}
	rules := Rules{Session: &rec, Definition: definition(config.IdPreset)}
	assert.Equal(t, []string{"a", "-r", "d"}, rules.ResumeCommand("d"))
	assert.Nil(t, Rules{Session: &rec}.ResumeCommand("d"))
}

func TestContinuation(t *testing.T) {
	rec := &session.Session{
		ID: "shop", Defined: true, ConversationID: "c", Command: []string{"old"}, ResumeCommand: []string{"old", "-r"},
	}
	def := definition(config.IdPreset)
	def.ResumeCondition, def.ResumeContent = []string{"%h/%U"}, regexp.MustCompile("x")
	rules := Rules{Session: rec, Definition: def, Values: config.Specifiers{Home: "/home/u", Conversation: "ignored"}}
	c := rules.Continuation()
	assert.Equal(t, Saved{
		Patterns: def.ResumeCondition, Content: def.ResumeContent,
		Values: config.Specifiers{Home: "/home/u", Conversation: "c"},
	}, c.Saved)
	assert.Equal(t, "c", c.FreshID)
	assert.Regexp(t, uuid, c.OtherID)
	assert.Equal(t, []string{"a", c.OtherID}, c.OtherCommand)

	rules.Definition.IdSource = config.IdCreate
	c = rules.Continuation()
	assert.Equal(t, "c", c.FreshID)
	assert.Empty(t, c.OtherID, "only IdCommand= creates ids")

	rules.Definition.IdSource = config.IdReport
	assert.Empty(t, rules.Continuation().FreshID, "the agent chooses it")

	rec.ConversationID = ""
	assert.Empty(t, rules.Continuation().Saved, "it is not known what to look for")
}

func TestRecordFromCommandLine(t *testing.T) {
	for name, c := range map[string]struct {
		command []string
		id      string
	}{
		"a fresh run":      {[]string{"node", "a", "-r", "c"}, "c"},
		"no id":            {[]string{"a"}, ""},
		"an invalid value": {[]string{"a", "-r", "--x"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			rec := &session.Session{Command: c.command, Run: &session.Run{ID: "r", Requested: began}}
			Rules{Session: rec, Definition: definition(config.IdReport)}.RecordFromCommandLine()
			assert.Equal(t, c.id, rec.ConversationID)
			assert.Equal(t, c.id != "", rec.Defined)
			assert.Equal(t, c.id != "", rec.Resumable())
			if c.id != "" {
				assert.Equal(t, session.Given, rec.Run.ConversationFrom)
				assert.Equal(t, began, rec.Run.ConversationAt)
			}
		})
	}
}

func TestIsNew(t *testing.T) {
	for name, c := range map[string]struct {
		def          config.Agent
		run          session.Run
		id, reported string
		want         bool
	}{
		"another id":      {definition(config.IdReport), session.Run{Conversation: "b"}, "c", "b", true},
		"no id":           {definition(config.IdReport), session.Run{Conversation: "b"}, "", "b", false},
		"the reported id": {definition(config.IdReport), session.Run{Conversation: "b"}, "c", "c", false},
		"an id that was only assigned": {
			definition(config.IdPreset), session.Run{Conversation: "c", ConversationFrom: session.Given}, "c", "", true,
		},
		"an id that was reported to an earlier daemon": {
			definition(config.IdPreset), session.Run{Conversation: "c", ConversationFrom: session.Reported}, "c", "", false,
		},
		"the id of a file":         {definition(config.IdHistoryFile), session.Run{}, "c", "", false},
		"an id that has no effect": {config.Agent{IdSource: config.IdNone}, session.Run{}, "c", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			rules := Rules{Session: &session.Session{Run: &c.run}, Definition: c.def}
			assert.Equal(t, c.want, rules.IsNew(c.id, c.reported))
		})
	}
}

func TestIsOpenFileDue(t *testing.T) {
	given, file := session.Run{Started: began, ConversationFrom: session.Given}, session.Run{Started: began}
	file.ConversationFrom = session.OpenFile
	for name, c := range map[string]struct {
		run      session.Run
		activity string
		isNew    bool
		want     bool
	}{
		"not detected yet":                        {given, word.Working, false, true},
		"detected, and the agent works":           {file, word.Working, false, false},
		"detected, and the agent no longer works": {file, word.Idle, false, true},
		"detected, and another one was reported":  {file, word.Working, true, true},
		"the agent does not run":                  {session.Run{}, word.Idle, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			rules := Rules{Session: &session.Session{Run: &c.run}}
			assert.Equal(t, c.want, rules.IsOpenFileDue(c.activity, c.isNew))
		})
	}
}

func TestOpenFile_PrefersTheReportedID(t *testing.T) {
	rules := Rules{Session: &session.Session{Run: &session.Run{Conversation: "c"}}}
	assert.Nil(t, rules.OpenFile(""))
	rules.Definition.IdFile, rules.Definition.IdFileContent = regexp.MustCompile("f"), regexp.MustCompile("x")
	want := &OpenFile{Path: rules.Definition.IdFile, Content: rules.Definition.IdFileContent, Known: "c"}
	assert.Equal(t, want, rules.OpenFile(""))
	assert.Equal(t, "d", rules.OpenFile("d").Known)
}

func TestPrinted_OnlyIfNothingBetterIsKnown(t *testing.T) {
	prints := config.Agent{IdPattern: regexp.MustCompile("resume (.)")}
	saves := prints
	saves.ResumeCondition = []string{"%h/%U"}
	ended := func(from session.ConversationSource) *session.Run {
		return &session.Run{Started: began, Exit: &exitstatus.Status{}, ConversationFrom: from}
	}
	for name, c := range map[string]struct {
		def  config.Agent
		run  *session.Run
		want bool
	}{
		"nothing is known":               {prints, ended(""), true},
		"no IdPattern=":                  {config.Agent{}, ended(""), false},
		"never started":                  {prints, nil, false},
		"the agent runs":                 {prints, &session.Run{Started: began}, false},
		"the agent was not executed":     {prints, &session.Run{Exit: &exitstatus.Status{}}, false},
		"an assigned id":                 {prints, ended(session.Given), false},
		"an assigned id, and conditions": {saves, ended(session.Given), true},
		"a reported id":                  {saves, ended(session.Reported), false},
	} {
		t.Run(name, func(t *testing.T) {
			printed := Rules{Session: &session.Session{Run: c.run}, Definition: c.def}.Printed()
			require.Equal(t, c.want, printed != nil)
			if c.want {
				assert.Equal(t, c.def.IdPattern, printed.Pattern)
				assert.Equal(t, c.def.ResumeCondition, printed.Saved.Patterns)
			}
		})
	}
}

func TestContinues_OnlyTheFirstRunWithoutARequest(t *testing.T) {
	assert.True(t, Continues(&session.Session{}, true))
	assert.True(t, Continues(&session.Session{Continues: true}, false))
	assert.False(t, Continues(&session.Session{Continues: true, NRuns: 1}, false))
	assert.False(t, Continues(&session.Session{}, false))
}

func TestConversation_InUse(t *testing.T) {
	for name, c := range map[string]struct {
		rec  session.Session
		want string
	}{
		"never started": {session.Session{ConversationID: "c"}, ""},
		"ended": {
			session.Session{Run: &session.Run{Conversation: "c", Scope: session.ScopeGone}}, "",
		},
		"running":                          {session.Session{ConversationID: "c", Run: &session.Run{Conversation: "d"}}, "d"},
		"unknown":                          {session.Session{Defined: true, ConversationID: "c", Run: &session.Run{}}, ""},
		"not recorded by an older version": {session.Session{ConversationID: "c", Run: &session.Run{}}, "c"},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, InUse(&c.rec)) })
	}
}

func TestIsSameAgent(t *testing.T) {
	a := &session.Session{Agent: "a", ResumeCommand: []string{"prog", "-r"}}
	for name, c := range map[string]struct {
		other session.Session
		want  bool
	}{
		"one definition":                   {session.Session{Agent: "a"}, true},
		"two definitions of one program":   {session.Session{Agent: "b", ResumeCommand: []string{"prog"}}, true},
		"another program":                  {session.Session{Agent: "b", ResumeCommand: []string{"x"}}, false},
		"a program that continues nothing": {session.Session{Agent: "b"}, false},
		"an account of the agent":          {session.Session{Agent: "a@work", ResumeCommand: []string{"prog"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, IsSameAgent(a, &c.other))
			assert.Equal(t, c.want, IsSameAgent(&c.other, a))
		})
	}
}

// The session's first conversation begins as a copy, however often it is begun; later ones do not.
func TestCommands_OfACopy(t *testing.T) {
	for name, c := range map[string]struct {
		source string
		fork   []string
		first  []string // %U is the id in the record
		known  bool     // the id of the copy
	}{
		"Corral chooses the id": {
			config.IdPreset, []string{"a", "--fork", "%F", "%U"}, []string{"a", "--fork", "o", "%U"}, true,
		},
		"the agent chooses the id": {
			config.IdReport, []string{"a", "--fork", "%F"}, []string{"a", "--fork", "o"}, false,
		},
		"the agent chooses only that of a copy": {
			config.IdPreset, []string{"a", "--fork", "%F"}, []string{"a", "--fork", "o"}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			rec := &session.Session{Defined: true, Arguments: []string{"x"}, Fork: &session.Fork{From: "s", Conversation: "o"}}
			rules := Rules{Session: rec, Definition: definition(c.source)}
			rules.Definition.ForkCommand = c.fork
			require.NoError(t, rules.SetCommands())
			assert.Equal(t, c.known, rec.ConversationID != "")
			for range 2 { // again, if nothing was saved
				id, _ := rules.AssignID(false)
				assert.Equal(t, rec.ConversationID, id)
				want, err := config.Expand(c.first, config.Specifiers{Conversation: rec.ConversationID})
				require.NoError(t, err)
				assert.Equal(t, append(want, "x"), rules.FreshCommand())
				require.NotNil(t, rules.Copy())
				assert.Equal(t, "o", rules.Copy().Original.Values.Conversation)
			}
			rec.ConversationID = "another"
			assert.NotContains(t, rules.FreshCommand(), "--fork")
			assert.Nil(t, rules.Copy())
		})
	}
}
