package supervisor

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/internal/unitname"
	"github.com/corrald/corral/supervisor/session"
)

// withConversations configures agents that have conversations, and returns the plan of each run
// that is started.
func (b *bed) withConversations() *[]Plan {
	b.t.Helper()
	require.NoError(b.t, b.sup.Reload(config.Default(), map[string]config.Agent{
		"preset": {
			Name: "preset", Command: []string{"preset", "--id", "%U"}, ResumeCommand: []string{"preset", "--resume", "%U"},
			ResumeCondition: []string{"%h/%U"}, IdSource: config.IdPreset, IdPattern: regexp.MustCompile(`--resume (\S+)`),
		},
		"reports": {
			Name: "reports", Command: []string{"reports"}, ResumeCommand: []string{"reports", "resume", "%U"},
			IdSource: config.IdReport, IdFile: regexp.MustCompile(`/(\w+)\.jsonl$`), IdPattern: regexp.MustCompile(`resume (\S+)`),
		},
		"created": {
			Name: "created", Command: []string{"created", "--resume", "%U"},
			ResumeCommand: []string{"created", "--resume", "%U"},
			IdSource:      config.IdCreate, IdCommand: []string{"created", "make", "%i"},
		},
		"filed": {
			Name: "filed", Command: []string{"filed", "%w/%U.md"}, ResumeCommand: []string{"filed", "%w/%U.md", "-r"},
			IdSource: config.IdHistoryFile,
		},
		"plain": {
			Name: "plain", Command: []string{"plain"}, IdSource: config.IdNone,
			StopTarget: config.StopAll, Properties: []string{"TimeoutStopSec=4"},
		},
	}))
	b.takeTrace()
	var plans []Plan
	b.system.start = func(p Plan, post func(session.Event)) error {
		plans = append(plans, p)
		return runs(p, post)
	}
	return &plans
}

// endRun makes the session's agent exit with 0, and its scope end.
func (b *bed) endRun(id string) {
	b.t.Helper()
	synctest.Wait()
	b.exit(id, 0)
	synctest.Wait()
	b.sup.ScopeEnded(b.records.last(id).Run.Unit, "", "success")
	b.takeTrace()
}

func (b *bed) create(agent string, spec Spec) error {
	_, err := b.sup.Create(b.t.Context(), agent, spec)
	return err
}

func TestConversation_FreshRunHasANewOne(t *testing.T) {
	for _, agent := range []string{"preset", "filed"} {
		supervise(t, func(b *bed) {
			plans := b.withConversations()
			require.NoError(t, b.create(agent, Spec{ID: "shop", NoStart: true}))
			first := b.records.last("shop").ConversationID
			require.NotEmpty(t, first)
			require.NoError(t, b.sup.Start(b.t.Context(), "shop"))
			b.endRun("shop")
			require.NoError(t, b.sup.Resume(b.t.Context(), "shop"))
			b.endRun("shop")
			require.NoError(t, b.sup.Start(b.t.Context(), "shop"))
			saved := b.records.last("shop")
			assert.NotEqual(t, first, saved.ConversationID)
			assert.Equal(t, []string{first}, saved.EarlierConversations)
			assert.Equal(t, first, saved.Past[0].Conversation)
			assert.Equal(t, first, saved.Past[1].Conversation)
			assert.True(t, saved.Past[1].Resumed)

			ids := []string{first, first, saved.ConversationID}
			for i, p := range *plans {
				assert.Contains(t, p.Spec.Args[len(p.Spec.Args)-1], ids[i])
				assert.Equal(t, i == 1, p.Conversation != nil)
			}
			assert.Contains(t, (*plans)[1].Conversation.Resume[1:], map[string]string{"preset": first, "filed": "-r"}[agent])
			assert.Equal(t, first, (*plans)[1].Conversation.FreshID, "if nothing was saved, the same id is used")
		})
	}
}

func TestConversation_IDIsSavedBeforeTheAgentStarts(t *testing.T) {
	supervise(t, func(b *bed) {
		b.withConversations()
		b.system.start = func(p Plan, post func(session.Event)) error {
			saved := b.records.last("shop")
			assert.Equal(t, []string{"preset", "--id", saved.ConversationID}, p.Spec.Args)
			assert.Equal(t, saved.ConversationID, saved.Run.Conversation)
			return runs(p, post)
		}
		require.NoError(t, b.create("preset", Spec{ID: "shop"}))
	})
}

// TestRun_UsesTheCurrentDefinition: if an agent renames an option, a change of its definition also
// applies to existing sessions.
func TestRun_UsesTheCurrentDefinition(t *testing.T) {
	supervise(t, func(b *bed) {
		plans := b.withConversations()
		require.NoError(t, b.create("preset", Spec{ID: "shop", Arguments: []string{"--model", "%U"}}))
		require.NoError(t, b.create("preset", Spec{ID: "own", Command: []string{"mine", "%U"}}))
		b.endRun("shop")
		b.endRun("own")
		id := b.records.last("shop").ConversationID
		assert.Equal(t, []string{"preset", "--id", id, "--model", "%U"}, (*plans)[0].Spec.Args,
			"arguments of a client are not expanded")
		assert.Equal(t, (*plans)[0].Spec.Args, b.records.last("shop").Command)
		*plans = nil
		require.NoError(t, b.sup.Reload(config.Default(), map[string]config.Agent{"preset": {
			Name: "preset", Command: []string{"preset2", "%U"}, ResumeCommand: []string{"preset2", "-r", "%U"},
			IdSource: config.IdPreset,
		}}))
		require.NoError(t, b.sup.Resume(b.t.Context(), "shop"))
		require.NoError(t, b.sup.Resume(b.t.Context(), "own"))
		assert.Equal(t, []string{"preset2", "-r", id}, (*plans)[0].Conversation.Resume)
		assert.Equal(t, []string{"preset2", id, "--model", "%U"}, (*plans)[0].Spec.Args)
		assert.Equal(t, []string{"mine", "%U"}, (*plans)[1].Spec.Args)
		b.endRun("shop")
		*plans = nil
		require.NoError(t, b.sup.Reload(config.Default(), nil))
		require.NoError(t, b.sup.Resume(b.t.Context(), "shop"))
		assert.Equal(t, []string{"preset", "--resume", id}, (*plans)[0].Conversation.Resume,
			"without a definition, the saved command is used")
	})
}

func TestCreate_RefusesArgumentsWithACommand(t *testing.T) {
	supervise(t, func(b *bed) {
		b.withConversations()
		err := b.create("preset", Spec{Command: []string{"x"}, Arguments: []string{"y"}})
		assert.Equal(t, Invalid, kindOf(err))
		assert.ErrorContains(t, err, "exclude each other")
	})
}

func TestResume_ReportsThatNothingWasSaved(t *testing.T) {
	supervise(t, func(b *bed) {
		b.withConversations()
		require.NoError(t, b.create("preset", Spec{ID: "shop"}))
		b.endRun("shop")
		id := b.records.last("shop").ConversationID
		b.system.start = func(p Plan, post func(session.Event)) error {
			assert.Equal(t, []string{"%h/%U"}, p.Conversation.Saved.Patterns)
			assert.Equal(t, id, p.Conversation.Saved.Values.Conversation)
			post(session.ConversationNotFound{Run: p.Spec.RunID, ID: p.Conversation.FreshID})
			return runs(p, post)
		}
		require.NoError(t, b.sup.Resume(b.t.Context(), "shop"))
		snap, err := b.sup.Session("shop")
		require.NoError(t, err)
		assert.False(t, snap.Resumed)
		assert.Equal(t, id, snap.ConversationID)
		assert.Contains(t, b.log.String(), "no conversation was saved; the agent starts a new one")
		b.endRun("shop")
		b.system.start = nil
		require.NoError(t, b.sup.Resume(b.t.Context(), "shop"))
		snap, err = b.sup.Session("shop")
		require.NoError(t, err)
		assert.True(t, snap.Resumed)
	})
}

func TestIdCommand_RunsBeforeTheAgent(t *testing.T) {
	supervise(t, func(b *bed) {
		plans := b.withConversations()
		b.system.create = func(p Plan) (string, error) {
			assert.NotEmpty(t, p.Spec.Dir)
			return "made-1", nil
		}
		b.call("create", func(context.Context) error { return b.create("created", Spec{ID: "shop"}) })
		recorded := b.takeTrace()
		assert.Equal(t, []string{
			"0s save shop: starting", "0s publish shop: new, starting",
			"0s make a conversation for shop by created make shop",
			"0s save shop: starting", "0s publish shop: starting", "0s start shop",
		}, recorded[:6], "it is on disk before the agent is executed")
		assert.Equal(t, []string{"created", "--resume", "made-1"}, (*plans)[0].Spec.Args)
		saved := b.records.last("shop")
		assert.Equal(t, []string{"created", "--resume", "%U"}, saved.Command, "the id was unknown at creation")
		b.endRun("shop")
		require.NoError(t, b.sup.Resume(b.t.Context(), "shop"))
		assert.Equal(t, []string{"created", "--resume", "made-1"}, (*plans)[1].Conversation.Resume)
		b.endRun("shop")

		b.system.create = func(Plan) (string, error) { return "", errors.New("nobody has logged in") }
		err := b.sup.Start(b.t.Context(), "shop")
		assert.Equal(t, StartFailed, kindOf(err))
		require.ErrorContains(t, err, "nobody has logged in")
		assert.Equal(t, "failed", b.state("shop"))
		assert.Equal(t, "made-1", b.records.last("shop").ConversationID, "the earlier id is kept")
		require.NoError(t, b.sup.Resume(b.t.Context(), "shop"), "that conversation can be continued")
		b.endRun("shop")

		b.system.create = func(Plan) (string, error) { return "made-2", nil }
		require.NoError(t, b.sup.Start(b.t.Context(), "shop"))
		assert.Equal(t, []string{"made-1"}, b.records.last("shop").EarlierConversations)
	})
}

func TestStop_CancelsIdCommand(t *testing.T) {
	supervise(t, func(b *bed) {
		b.withConversations()
		release := make(chan struct{})
		b.system.create = func(Plan) (string, error) { <-release; return "made-1", nil }
		b.call("create", func(context.Context) error { return b.create("created", Spec{ID: "shop"}) })
		b.takeTrace()
		b.call("stop", func(ctx context.Context) error { return b.sup.Stop(ctx, "shop", 0) })
		assert.Equal(t, "stopping", b.state("shop"))
		close(release)
		assert.Equal(t, "stopped", b.state("shop"))
		recorded := b.takeTrace()
		assert.Contains(t, recorded, "0s stop: ok")
		assert.NotContains(t, recorded, "0s start shop")
	})
}

func TestConversation_HasOneProcess(t *testing.T) {
	supervise(t, func(b *bed) {
		b.withConversations()
		held := func(err error) {
			t.Helper()
			assert.Equal(t, ConversationBusy, kindOf(err))
			assert.ErrorContains(t, err, `conversation "talk" is in use by session "a"`)
		}
		require.NoError(t, b.create("reports", Spec{ID: "a", ConversationID: "talk"}))
		assert.True(t, b.records.last("a").Run.Resumed)
		held(b.create("reports", Spec{ID: "b", ConversationID: "talk"}))
		require.NoError(t, b.create("reports", Spec{ID: "b", ConversationID: "talk", NoStart: true}))
		held(b.sup.Start(b.t.Context(), "b"))
		require.NoError(t, b.create("preset", Spec{ID: "other", ConversationID: "talk"}), "same id of another agent")
		b.endRun("a")
		require.NoError(t, b.sup.Start(b.t.Context(), "b"))
		assert.Equal(t, ConversationBusy, kindOf(b.sup.Resume(b.t.Context(), "a")))
		require.NoError(t, b.sup.Start(b.t.Context(), "a"), "a fresh run has another conversation, whose id is unknown")
		assert.Equal(t, "talk", b.records.last("a").ConversationID, "the earlier id is kept until the new one is known")
		b.endRun("b")
		b.endRun("a")
		require.NoError(t, b.sup.Resume(b.t.Context(), "a"))
		held(b.sup.Resume(b.t.Context(), "b"))
	})
}

// TestConversation_IsHeldAcrossDaemonRestarts, also across a restart of an older version, which did
// not record the conversation of a run.
func TestConversation_IsHeldAcrossDaemonRestarts(t *testing.T) {
	for _, older := range []bool{false, true} {
		supervise(t, func(b *bed) {
			b.withConversations()
			holder := runningRecord(b, true)
			holder.Agent, holder.ConversationID, holder.Run.Unit = "reports", "talk", unitname.Scope("reports", "shop")
			if !older {
				holder.Defined = true
				holder.Run.Conversation, holder.Run.ConversationFrom = "talk", session.Reported
			}
			b.system.scopes = []Scope{{Name: holder.Run.Unit, InvocationID: "inv", ControlGroup: "/shop", Active: true}}
			require.NoError(t, b.sup.loop.do(func() {
				require.NoError(t, b.sup.Adopt(b.t.Context(), []*session.Session{holder}))
			}))
			err := b.create("reports", Spec{ID: "b", ConversationID: "talk"})
			assert.Equal(t, ConversationBusy, kindOf(err))
			assert.ErrorContains(t, err, "shop")
		})
	}
}

func TestConversation_IsHeldByARunAboutToBegin(t *testing.T) {
	supervise(t, func(b *bed) {
		b.withConversations()
		require.NoError(t, b.create("reports", Spec{ID: "a", ConversationID: "talk"}))
		require.NoError(t, b.create("reports", Spec{ID: "b", ConversationID: "talk", NoStart: true}))
		synctest.Wait()
		b.exit("a", 1) // its scope still exists
		synctest.Wait()
		b.call("resume", func(ctx context.Context) error { return b.sup.Resume(ctx, "a") })
		assert.Equal(t, ConversationBusy, kindOf(b.sup.Start(b.t.Context(), "b")))
		b.sup.ScopeEnded(unitname.Scope("reports", "a"), "", "success")
		assert.Contains(t, b.takeTrace(), "0s resume: ok")
	})
}

func TestConversation_SharedByTwoSessionsIsAProblem(t *testing.T) {
	supervise(t, func(b *bed) {
		b.withConversations()
		for _, id := range []string{"a", "b"} {
			require.NoError(t, b.create("reports", Spec{ID: id}))
			require.NoError(t, b.sup.Report(b.t.Context(), id, Report{Activity: "working", ConversationID: "talk"}))
		}
		assert.Equal(t, "running", b.state("a"), "no session is ended")
		assert.Equal(t, "running", b.state("b"))
		assert.Contains(t, b.log.String(), "two sessions use the same conversation")
		problems := b.problems()
		require.Len(t, problems, 2)
		assert.Equal(t, `session "b" uses the same conversation; stop one of them, or their messages may be mixed`,
			problems[0].Text)
		b.endRun("a")
		assert.Empty(t, b.problems())
	})
}

func TestResume_UsesTheReportedConversation(t *testing.T) {
	supervise(t, func(b *bed) {
		b.withConversations()
		for agent, resumed := range map[string]bool{
			"reports": true, "preset": true, "created": true, "filed": false, "plain": false,
		} {
			b.system.create = func(Plan) (string, error) { return "made", nil }
			require.NoError(t, b.create(agent, Spec{ID: agent}))
			before := b.records.last(agent).ConversationID
			require.NoError(t, b.sup.Report(b.t.Context(), agent, Report{Activity: "working", ConversationID: "its-own"}))
			saved := b.records.last(agent)
			assert.Equal(t, resumed, saved.ConversationID == "its-own", agent)
			assert.Equal(t, resumed, slices.Contains(saved.ResumeCommand, "its-own"), agent)
			if resumed && before != "" {
				assert.Equal(t, []string{before}, saved.EarlierConversations, agent)
			}
			assert.Equal(t, agent != "plain", saved.Resumable(), agent)
		}
	})
}

// TestConversation_IsDetectedFromOpenFiles: when a status report arrives, and before the agent is
// stopped.
func TestConversation_IsDetectedFromOpenFiles(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.startWithShim()
		require.NoError(t, b.sup.Reload(config.Default(), map[string]config.Agent{
			"command": {Name: "command", ResumeCommand: []string{"resume", "%U"}, IdFile: regexp.MustCompile(`(.+)`)},
		}))
		detection := "0s list the open files of /" + unitname.Scope("command", "shop")
		detections := func(activity string, seq uint32) []string {
			s.reportStatus(seq, activity, "")
			return slices.DeleteFunc(b.takeTrace(), func(line string) bool { return line != detection })
		}
		assert.Len(t, detections("idle", 10), 1, "no file is open yet")
		assert.Empty(t, b.records.last("shop").ConversationID)
		b.system.open = "first"
		assert.Len(t, detections("working", 11), 1)
		assert.Equal(t, "first", b.records.last("shop").ConversationID)
		assert.Equal(t, []string{"resume", "first"}, b.records.last("shop").ResumeCommand)
		assert.Empty(t, detections("working", 12), "it was just detected")
		b.system.open = "second"
		assert.Len(t, detections("idle", 13), 1)
		assert.Equal(t, "second", b.records.last("shop").ConversationID)
		assert.Equal(t, []string{"first"}, b.records.last("shop").EarlierConversations)

		b.system.open = "third"
		b.call("stop", func(ctx context.Context) error { return b.sup.Stop(ctx, "shop", 0) })
		recorded := b.takeTrace()
		assert.Less(t, slices.Index(recorded, detection), slices.Index(recorded, "0s terminate shop"))
		assert.Equal(t, "third", b.records.last("shop").ConversationID)
		b.endScope("shop")
		s.disconnect()
	})
}

// TestConversation_OpenFileSupersedesAReport: Codex's hooks also report the conversation in which
// Codex generates a title.
func TestConversation_OpenFileSupersedesAReport(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.startWithShim()
		require.NoError(t, b.sup.Reload(config.Default(), map[string]config.Agent{
			"command": {Name: "command", ResumeCommand: []string{"resume", "%U"}, IdFile: regexp.MustCompile(`(.+)`)},
		}))
		report := func(activity, id string) {
			require.NoError(t, b.sup.Report(b.t.Context(), "shop", Report{Activity: activity, ConversationID: id}))
			synctest.Wait()
		}
		report("working", "reported")
		assert.Equal(t, "reported", b.records.last("shop").ConversationID, "no other id is known")
		b.system.open = "seen"
		s.send(shimwire.Message{Kind: shimwire.Idle, Since: time.Now(), Seq: 3})
		assert.Equal(t, "seen", b.records.last("shop").ConversationID)
		report("working", "title")
		assert.Equal(t, "seen", b.records.last("shop").ConversationID)
		assert.Equal(t, "title", b.system.preferred.Load(), "if both are open")
		b.system.open = "title"
		report("working", "another")
		assert.Equal(t, "title", b.records.last("shop").ConversationID)
		s.disconnect()
	})
}

func TestConversation_IsDetectedFromTheLog(t *testing.T) {
	supervise(t, func(b *bed) {
		plans := b.withConversations()
		b.system.printed = "hinted"
		for _, id := range []string{"reports", "preset"} {
			require.NoError(t, b.create(id, Spec{ID: id}))
			b.endRun(id)
			assert.Equal(t, "hinted", b.records.last(id).ConversationID,
				"also of preset, which has left the assigned conversation and saved another")
		}
		require.NoError(t, b.sup.Resume(b.t.Context(), "reports"))
		assert.Equal(t, []string{"reports", "resume", "hinted"}, (*plans)[2].Conversation.Resume)
		b.system.printed = "another"
		require.NoError(t, b.sup.Report(b.t.Context(), "reports", Report{Activity: "idle", ConversationID: "reported"}))
		b.endRun("reports")
		assert.Equal(t, "reported", b.records.last("reports").ConversationID, "a reported id has precedence")
	})
}

// TestStopTimeout_Precedence: the session's own, then that of its agent, then the configured one.
func TestStopTimeout_Precedence(t *testing.T) {
	supervise(t, func(b *bed) {
		plans := b.withConversations()
		require.NoError(t, b.create("plain", Spec{ID: "agents"}))
		own := []session.Property{{Name: "TimeoutStopUSec", Signature: "t", Value: "@t 6000000"}}
		require.NoError(t, b.create("plain", Spec{ID: "own", UnitProperties: own}))
		require.NoError(t, b.create("reports", Spec{ID: "configured"}))
		for i, seconds := range []float64{4, 6, 10} {
			assert.InDelta(t, seconds, (*plans)[i].StopTimeout.Seconds(), 0)
		}
		b.takeTrace()
		for _, id := range []string{"agents", "own", "configured"} {
			b.call("stop", func(ctx context.Context) error { return b.sup.Stop(ctx, id, 0) })
		}
		<-time.After(11 * time.Second)
		recorded := b.takeTrace()
		for _, line := range []string{"4s kill agents", "6s kill own", "10s kill configured"} {
			assert.Contains(t, recorded, line)
		}
		require.NoError(t, b.sup.loop.do(func() {
			assert.True(t, b.sup.loop.sessions.byID["agents"].target().StopAll)
			assert.False(t, b.sup.loop.sessions.byID["configured"].target().StopAll)
		}))
	})
}

// TestScopeEnd_ReportedLateIsOfTheEarlierRun, also while IdCommand= creates the conversation of the
// next run.
func TestScopeEnd_ReportedLateIsOfTheEarlierRun(t *testing.T) {
	supervise(t, func(b *bed) {
		b.withConversations()
		n, hold := 0, make(chan struct{})
		b.system.create = func(Plan) (string, error) {
			if n++; n == 2 {
				<-hold
			}
			return []string{"", "made-1", "made-2"}[n], nil
		}
		require.NoError(t, b.create("created", Spec{ID: "shop"}))
		b.exit("shop", 0)
		b.takeTrace()
		b.system.populated = false
		b.sup.loop.adoption.resync() // the scope no longer exists; systemd's signal arrives later
		synctest.Wait()
		b.system.start = func(p Plan, post func(session.Event)) error {
			post(session.ScopeStarted{Run: p.Spec.RunID, InvocationID: "another", ControlGroup: "/" + p.Unit})
			post(session.AgentStarted{Run: p.Spec.RunID, Agent: session.Process{PID: 13, Start: 130}, At: time.Now()})
			return nil
		}
		b.call("start", func(ctx context.Context) error { return b.sup.Start(ctx, "shop") })
		b.takeTrace()
		b.sup.ScopeEnded(unitname.Scope("created", "shop"), "inv", "success")
		close(hold)
		assert.Contains(t, b.takeTrace(), "0s start: ok")
		assert.Equal(t, "running", b.state("shop"))
	})
}

// TestResume_KeepsItsOrderWhileWaiting: a resume waits for the detection of the printed
// conversation. It counts as accepted only after that, so that later requests follow it.
func TestResume_KeepsItsOrderWhileWaiting(t *testing.T) {
	supervise(t, func(b *bed) {
		b.withConversations()
		require.NoError(t, b.create("reports", Spec{ID: "shop"}))
		b.exit("shop", 0)
		b.sup.ScopeEnded(unitname.Scope("reports", "shop"), "inv", "success")
		b.takeTrace()
		setDetecting := func(detecting bool) {
			require.NoError(t, b.sup.loop.do(func() {
				b.sup.loop.sessions.byID["shop"].detectingPrinted = detecting
				b.sup.loop.sessions.byID["shop"].markDirty()
			}))
		}
		setDetecting(true)
		accepted := false
		b.call("resume", func(ctx context.Context) error {
			return b.sup.Resume(WhenAccepted(ctx, func() { accepted = true }), "shop")
		})
		assert.False(t, accepted)
		setDetecting(false)
		assert.Contains(t, b.takeTrace(), "0s resume: ok")
		assert.True(t, accepted)
	})
}
