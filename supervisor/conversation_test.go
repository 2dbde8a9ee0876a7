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
	"github.com/corrald/corral/supervisor/session"
)

// talking has the supervisor know agents that have conversations, and returns what each run was planned to execute.
func (b *bed) talking() *[]Plan {
	b.t.Helper()
	require.NoError(b.t, b.sup.Reload(config.Default(), map[string]config.Agent{
		"preset": {
			Name: "preset", Command: []string{"preset", "--id", "%U"}, ResumeCommand: []string{"preset", "--resume", "%U"},
			ResumeCondition: []string{"%h/%U"}, IdSource: config.IdPreset, IdPattern: regexp.MustCompile(`--resume (\S+)`),
		},
		"reports": {
			Name: "reports", Command: []string{"reports"}, ResumeCommand: []string{"reports", "resume", "%U"}, IdSource: config.IdReport,
			IdFile: regexp.MustCompile(`/(\w+)\.jsonl$`), IdPattern: regexp.MustCompile(`resume (\S+)`),
		},
		"created": {
			Name: "created", Command: []string{"created", "--resume", "%U"}, ResumeCommand: []string{"created", "--resume", "%U"},
			IdSource: config.IdCreate, IdCommand: []string{"created", "make", "%i"},
		},
		"filed": {Name: "filed", Command: []string{"filed", "%w/%U.md"}, ResumeCommand: []string{"filed", "%w/%U.md", "-r"}, IdSource: config.IdHistoryFile},
		"plain": {Name: "plain", Command: []string{"plain"}, IdSource: config.IdNone, StopTarget: config.StopAll, Properties: []string{"TimeoutStopSec=4"}},
	}))
	b.heard()
	var plans []Plan
	b.world.start = func(p Plan, tell func(session.Event)) error {
		plans = append(plans, p)
		return runs(p, tell)
	}
	return &plans
}

// ends has a session's agent end with 0, and its scope with it.
func (b *bed) ends(id string) {
	b.t.Helper()
	synctest.Wait()
	b.exit(id, 0)
	synctest.Wait()
	b.sup.ScopeEnded(b.records.last(id).Run.Unit, "", "success")
	b.heard()
}

func (b *bed) create(agent string, spec Spec) error {
	_, err := b.sup.Create(b.t.Context(), agent, spec)
	return err
}

func TestAFreshRunHasAConversationOfItsOwn(t *testing.T) {
	for _, agent := range []string{"preset", "filed"} {
		supervise(t, func(b *bed) {
			plans := b.talking()
			require.NoError(t, b.create(agent, Spec{ID: "shop", NoStart: true}))
			first := b.records.last("shop").ConversationID
			require.NotEmpty(t, first)
			require.NoError(t, b.sup.Start(b.t.Context(), "shop"))
			b.ends("shop")
			require.NoError(t, b.sup.Resume(b.t.Context(), "shop"))
			b.ends("shop")
			require.NoError(t, b.sup.Start(b.t.Context(), "shop"))
			saved := b.records.last("shop")
			assert.NotEqual(t, first, saved.ConversationID)
			assert.Equal(t, []string{first}, saved.Earlier)
			assert.Equal(t, first, saved.Past[0].Conversation)
			assert.Equal(t, first, saved.Past[1].Conversation)
			assert.True(t, saved.Past[1].Resumed)

			ids := []string{first, first, saved.ConversationID}
			for i, p := range *plans {
				assert.Contains(t, p.Spec.Args[len(p.Spec.Args)-1], ids[i])
				assert.Equal(t, i == 1, p.Conversation != nil)
			}
			assert.Contains(t, (*plans)[1].Conversation.Resume[1:], map[string]string{"preset": first, "filed": "-r"}[agent])
			assert.Equal(t, first, (*plans)[1].Conversation.Begins, "with which it begins where nothing was saved")
		})
	}
}

func TestTheIdIsOnDiskBeforeTheAgentIsExecuted(t *testing.T) {
	supervise(t, func(b *bed) {
		b.talking()
		b.world.start = func(p Plan, tell func(session.Event)) error {
			saved := b.records.last("shop")
			assert.Equal(t, []string{"preset", "--id", saved.ConversationID}, p.Spec.Args)
			assert.Equal(t, saved.ConversationID, saved.Run.Conversation)
			return runs(p, tell)
		}
		require.NoError(t, b.create("preset", Spec{ID: "shop"}))
	})
}

// TestARunIsAsTheDefinitionSays: a flag that the agent has renamed is mended in one place, for sessions that are there as well.
func TestARunIsAsTheDefinitionSays(t *testing.T) {
	supervise(t, func(b *bed) {
		plans := b.talking()
		require.NoError(t, b.create("preset", Spec{ID: "shop", Arguments: []string{"--model", "%U"}}))
		require.NoError(t, b.create("preset", Spec{ID: "own", Command: []string{"mine", "%U"}}))
		b.ends("shop")
		b.ends("own")
		id := b.records.last("shop").ConversationID
		assert.Equal(t, []string{"preset", "--id", id, "--model", "%U"}, (*plans)[0].Spec.Args, "what a client gives is taken as it is")
		assert.Equal(t, (*plans)[0].Spec.Args, b.records.last("shop").Command)
		*plans = nil
		require.NoError(t, b.sup.Reload(config.Default(), map[string]config.Agent{"preset": {
			Name: "preset", Command: []string{"preset2", "%U"}, ResumeCommand: []string{"preset2", "-r", "%U"}, IdSource: config.IdPreset,
		}}))
		require.NoError(t, b.sup.Resume(b.t.Context(), "shop"))
		require.NoError(t, b.sup.Resume(b.t.Context(), "own"))
		assert.Equal(t, []string{"preset2", "-r", id}, (*plans)[0].Conversation.Resume)
		assert.Equal(t, []string{"preset2", id, "--model", "%U"}, (*plans)[0].Spec.Args)
		assert.Equal(t, []string{"mine", "%U"}, (*plans)[1].Spec.Args)
		b.ends("shop")
		*plans = nil
		require.NoError(t, b.sup.Reload(config.Default(), nil))
		require.NoError(t, b.sup.Resume(b.t.Context(), "shop"))
		assert.Equal(t, []string{"preset", "--resume", id}, (*plans)[0].Conversation.Resume, "what was saved, where there is no definition any more")
	})
}

func TestArgumentsAndACommandExcludeEachOther(t *testing.T) {
	supervise(t, func(b *bed) {
		b.talking()
		err := b.create("preset", Spec{Command: []string{"x"}, Arguments: []string{"y"}})
		assert.Equal(t, Invalid, kindOf(err))
		assert.ErrorContains(t, err, "exclude each other")
	})
}

func TestNothingSavedIsTold(t *testing.T) {
	supervise(t, func(b *bed) {
		b.talking()
		require.NoError(t, b.create("preset", Spec{ID: "shop"}))
		b.ends("shop")
		id := b.records.last("shop").ConversationID
		b.world.start = func(p Plan, tell func(session.Event)) error {
			assert.Equal(t, []string{"%h/%U"}, p.Conversation.Condition)
			assert.Equal(t, id, p.Conversation.Values.Conversation)
			tell(session.NothingSaved{Run: p.Spec.RunID, ID: p.Conversation.Begins})
			return runs(p, tell)
		}
		require.NoError(t, b.sup.Resume(b.t.Context(), "shop"))
		snap, err := b.sup.Session("shop")
		require.NoError(t, err)
		assert.False(t, snap.Resumed)
		assert.Equal(t, id, snap.ConversationID)
		assert.Contains(t, b.log.String(), "no conversation was saved; the agent starts a new one")
		b.ends("shop")
		b.world.start = nil
		require.NoError(t, b.sup.Resume(b.t.Context(), "shop"))
		snap, err = b.sup.Session("shop")
		require.NoError(t, err)
		assert.True(t, snap.Resumed)
	})
}

func TestAConversationIsMadeBeforeTheRun(t *testing.T) {
	supervise(t, func(b *bed) {
		plans := b.talking()
		b.world.make = func(p Plan) (string, error) {
			assert.NotEmpty(t, p.Spec.Dir)
			return "made-1", nil
		}
		b.call("create", func(context.Context) error { return b.create("created", Spec{ID: "shop"}) })
		told := b.heard()
		assert.Equal(t, []string{
			"0s save shop: starting", "0s publish shop: new, starting", "0s make a conversation for shop by created make shop",
			"0s save shop: starting", "0s publish shop: starting", "0s start shop",
		}, told[:6], "it is on disk before the agent is executed")
		assert.Equal(t, []string{"created", "--resume", "made-1"}, (*plans)[0].Spec.Args)
		saved := b.records.last("shop")
		assert.Equal(t, []string{"created", "--resume", "%U"}, saved.Command, "as it was known when it was created")
		b.ends("shop")
		require.NoError(t, b.sup.Resume(b.t.Context(), "shop"))
		assert.Equal(t, []string{"created", "--resume", "made-1"}, (*plans)[1].Conversation.Resume)
		b.ends("shop")

		b.world.make = func(Plan) (string, error) { return "", errors.New("nobody has logged in") }
		err := b.sup.Start(b.t.Context(), "shop")
		assert.Equal(t, StartFailed, kindOf(err))
		require.ErrorContains(t, err, "nobody has logged in")
		assert.Equal(t, "failed", b.state("shop"))
		assert.Equal(t, "made-1", b.records.last("shop").ConversationID, "what was known stays")
		require.NoError(t, b.sup.Resume(b.t.Context(), "shop"), "and can be gone on with")
		b.ends("shop")

		b.world.make = func(Plan) (string, error) { return "made-2", nil }
		require.NoError(t, b.sup.Start(b.t.Context(), "shop"))
		assert.Equal(t, []string{"made-1"}, b.records.last("shop").Earlier)
	})
}

func TestAStopCallsOffTheMakingOfAConversation(t *testing.T) {
	supervise(t, func(b *bed) {
		b.talking()
		asked := make(chan struct{})
		b.world.make = func(Plan) (string, error) { <-asked; return "made-1", nil }
		b.call("create", func(context.Context) error { return b.create("created", Spec{ID: "shop"}) })
		b.heard()
		b.call("stop", func(ctx context.Context) error { return b.sup.Stop(ctx, "shop", 0) })
		assert.Equal(t, "stopping", b.state("shop"))
		close(asked)
		assert.Equal(t, "stopped", b.state("shop"))
		told := b.heard()
		assert.Contains(t, told, "0s stop: ok")
		assert.NotContains(t, told, "0s start shop")
	})
}

func TestOneProcessForOneConversation(t *testing.T) {
	supervise(t, func(b *bed) {
		b.talking()
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
		require.NoError(t, b.create("preset", Spec{ID: "other", ConversationID: "talk"}), "another agent's")
		b.ends("a")
		require.NoError(t, b.sup.Start(b.t.Context(), "b"))
		assert.Equal(t, ConversationBusy, kindOf(b.sup.Resume(b.t.Context(), "a")))
		require.NoError(t, b.sup.Start(b.t.Context(), "a"), "a fresh run has another one, though nobody knows which")
		assert.Equal(t, "talk", b.records.last("a").ConversationID, "what was known stays until then")
		b.ends("b")
		b.ends("a")
		require.NoError(t, b.sup.Resume(b.t.Context(), "a"))
		held(b.sup.Resume(b.t.Context(), "b"))
	})
}

// TestAConversationIsHeldAcrossRestarts: of the daemon, also one that did not note which run had it.
func TestAConversationIsHeldAcrossRestarts(t *testing.T) {
	for _, older := range []bool{false, true} {
		supervise(t, func(b *bed) {
			b.talking()
			holder := runningRecord(b, true)
			holder.Agent, holder.ConversationID, holder.Run.Unit = "reports", "talk", UnitName("reports", "shop")
			if !older {
				holder.Defined = true
				holder.Run.Conversation, holder.Run.ConversationFrom = "talk", session.Reported
			}
			b.world.scopes = []Scope{{Name: holder.Run.Unit, InvocationID: "inv", ControlGroup: "/shop", Active: true}}
			require.NoError(t, b.sup.do(func() { require.NoError(t, b.sup.Adopt(b.t.Context(), []*session.Session{holder})) }))
			err := b.create("reports", Spec{ID: "b", ConversationID: "talk"})
			assert.Equal(t, ConversationBusy, kindOf(err))
			assert.ErrorContains(t, err, "shop")
		})
	}
}

func TestARunThatIsAboutToBeginHoldsItsConversation(t *testing.T) {
	supervise(t, func(b *bed) {
		b.talking()
		require.NoError(t, b.create("reports", Spec{ID: "a", ConversationID: "talk"}))
		require.NoError(t, b.create("reports", Spec{ID: "b", ConversationID: "talk", NoStart: true}))
		synctest.Wait()
		b.exit("a", 1) // its scope is still there
		synctest.Wait()
		b.call("resume", func(ctx context.Context) error { return b.sup.Resume(ctx, "a") })
		assert.Equal(t, ConversationBusy, kindOf(b.sup.Start(b.t.Context(), "b")))
		b.sup.ScopeEnded(UnitName("reports", "a"), "", "success")
		assert.Contains(t, b.heard(), "0s resume: ok")
	})
}

func TestTwoSessionsThatReportOneConversationAreTold(t *testing.T) {
	supervise(t, func(b *bed) {
		b.talking()
		for _, id := range []string{"a", "b"} {
			require.NoError(t, b.create("reports", Spec{ID: id}))
			require.NoError(t, b.sup.Report(b.t.Context(), id, Report{Activity: "working", ConversationID: "talk"}))
		}
		assert.Equal(t, "running", b.state("a"), "nothing is ended")
		assert.Equal(t, "running", b.state("b"))
		assert.Contains(t, b.log.String(), "two sessions use the same conversation")
		problems := b.problems()
		require.Len(t, problems, 2)
		assert.Equal(t, `session "b" uses the same conversation; stop one of them, or their messages may be mixed`, problems[0].Text)
		b.ends("a")
		assert.Empty(t, b.problems())
	})
}

func TestAReportedConversationIsTheOneThatIsResumed(t *testing.T) {
	supervise(t, func(b *bed) {
		b.talking()
		for agent, resumed := range map[string]bool{"reports": true, "preset": true, "created": true, "filed": false, "plain": false} {
			b.world.make = func(Plan) (string, error) { return "made", nil }
			require.NoError(t, b.create(agent, Spec{ID: agent}))
			before := b.records.last(agent).ConversationID
			require.NoError(t, b.sup.Report(b.t.Context(), agent, Report{Activity: "working", ConversationID: "its-own"}))
			saved := b.records.last(agent)
			assert.Equal(t, resumed, saved.ConversationID == "its-own", agent)
			assert.Equal(t, resumed, slices.Contains(saved.ResumeCommand, "its-own"), agent)
			if resumed && before != "" {
				assert.Equal(t, []string{before}, saved.Earlier, agent)
			}
			assert.Equal(t, agent != "plain", saved.Resumable(), agent)
		}
	})
}

// TestAConversationIsFoundByWhatIsHeldOpen: when something is told anyway, and before the agent ends.
func TestAConversationIsFoundByWhatIsHeldOpen(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.running()
		require.NoError(t, b.sup.Reload(config.Default(), map[string]config.Agent{
			"command": {Name: "command", ResumeCommand: []string{"resume", "%U"}, IdFile: regexp.MustCompile(`(.+)`)},
		}))
		said := func(activity string, seq uint32) []string {
			s.says(shimwire.Message{Kind: shimwire.StatusReport, Source: "osc7501", Activity: activity, Since: time.Now(), Seq: seq})
			return slices.DeleteFunc(b.heard(), func(line string) bool { return line != "0s look at the files of shop" })
		}
		assert.Len(t, said("idle", 10), 1, "nothing is there yet")
		assert.Empty(t, b.records.last("shop").ConversationID)
		b.world.open = "first"
		assert.Len(t, said("working", 11), 1)
		assert.Equal(t, "first", b.records.last("shop").ConversationID)
		assert.Equal(t, []string{"resume", "first"}, b.records.last("shop").ResumeCommand)
		assert.Empty(t, said("working", 12), "it has just been found")
		b.world.open = "second"
		assert.Len(t, said("idle", 13), 1)
		assert.Equal(t, "second", b.records.last("shop").ConversationID)
		assert.Equal(t, []string{"first"}, b.records.last("shop").Earlier)

		b.world.open = "third"
		b.call("stop", func(ctx context.Context) error { return b.sup.Stop(ctx, "shop", 0) })
		told := b.heard()
		assert.Less(t, slices.Index(told, "0s look at the files of shop"), slices.Index(told, "0s ask agent shop"))
		assert.Equal(t, "third", b.records.last("shop").ConversationID)
		b.empty("shop")
		s.hangUp()
	})
}

// TestAnOpenFileKnowsBetterThanAReport: Codex's hooks also speak for the conversation that it has to make up a title.
func TestAnOpenFileKnowsBetterThanAReport(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.running()
		require.NoError(t, b.sup.Reload(config.Default(), map[string]config.Agent{
			"command": {Name: "command", ResumeCommand: []string{"resume", "%U"}, IdFile: regexp.MustCompile(`(.+)`)},
		}))
		report := func(activity, id string) {
			require.NoError(t, b.sup.Report(b.t.Context(), "shop", Report{Activity: activity, ConversationID: id}))
			synctest.Wait()
		}
		report("working", "told")
		assert.Equal(t, "told", b.records.last("shop").ConversationID, "nothing else is known")
		b.world.open = "seen"
		s.says(shimwire.Message{Kind: shimwire.Idle, Since: time.Now(), Seq: 3})
		assert.Equal(t, "seen", b.records.last("shop").ConversationID)
		report("working", "title")
		assert.Equal(t, "seen", b.records.last("shop").ConversationID)
		assert.Equal(t, "title", b.world.preferred, "if both are open")
		b.world.open = "title"
		report("working", "another")
		assert.Equal(t, "title", b.records.last("shop").ConversationID)
		s.hangUp()
	})
}

func TestTheLastWordsOfAnAgentAreAHint(t *testing.T) {
	supervise(t, func(b *bed) {
		plans := b.talking()
		b.world.hint = "hinted"
		for _, id := range []string{"reports", "preset"} {
			require.NoError(t, b.create(id, Spec{ID: id}))
			b.ends(id)
			assert.Equal(t, "hinted", b.records.last(id).ConversationID, "of preset: it has left the one that it was given, and saved another")
		}
		require.NoError(t, b.sup.Resume(b.t.Context(), "reports"))
		assert.Equal(t, []string{"reports", "resume", "hinted"}, (*plans)[2].Conversation.Resume)
		b.world.hint = "another"
		require.NoError(t, b.sup.Report(b.t.Context(), "reports", Report{Activity: "idle", ConversationID: "told"}))
		b.ends("reports")
		assert.Equal(t, "told", b.records.last("reports").ConversationID, "who has told it needs no hint")
	})
}

// TestStopTimeouts: a session's own, its agent's, the one that is configured.
func TestStopTimeouts(t *testing.T) {
	supervise(t, func(b *bed) {
		plans := b.talking()
		require.NoError(t, b.create("plain", Spec{ID: "agents"}))
		require.NoError(t, b.create("plain", Spec{ID: "own", UnitProperties: []session.Property{{Name: "TimeoutStopUSec", Signature: "t", Value: "@t 6000000"}}}))
		require.NoError(t, b.create("reports", Spec{ID: "configured"}))
		for i, seconds := range []float64{4, 6, 10} {
			assert.InDelta(t, seconds, (*plans)[i].StopTimeout.Seconds(), 0)
		}
		b.heard()
		for _, id := range []string{"agents", "own", "configured"} {
			b.call("stop", func(ctx context.Context) error { return b.sup.Stop(ctx, id, 0) })
		}
		<-time.After(11 * time.Second)
		told := b.heard()
		for _, line := range []string{"4s kill agents", "6s kill own", "10s kill configured"} {
			assert.Contains(t, told, line)
		}
		require.NoError(t, b.sup.do(func() {
			assert.True(t, b.sup.target(b.sup.sessions["agents"]).AskAll)
			assert.False(t, b.sup.target(b.sup.sessions["configured"]).AskAll)
		}))
	})
}

// TestALateEndOfTheScopeBefore is that of the run before, also while the next run's conversation is only being made.
func TestALateEndOfTheScopeBefore(t *testing.T) {
	supervise(t, func(b *bed) {
		b.talking()
		n, hold := 0, make(chan struct{})
		b.world.make = func(Plan) (string, error) {
			if n++; n == 2 {
				<-hold
			}
			return []string{"", "made-1", "made-2"}[n], nil
		}
		require.NoError(t, b.create("created", Spec{ID: "shop"}))
		b.exit("shop", 0)
		b.heard()
		b.world.populated = false
		b.sup.Resync() // it is gone, of which systemd's signal comes later
		synctest.Wait()
		b.world.start = func(p Plan, tell func(session.Event)) error {
			tell(session.ScopeStarted{Run: p.Spec.RunID, InvocationID: "another", ControlGroup: "/" + p.Unit})
			tell(session.AgentStarted{Run: p.Spec.RunID, Agent: session.Process{PID: 13, Start: 130}, At: time.Now()})
			return nil
		}
		b.call("start", func(ctx context.Context) error { return b.sup.Start(ctx, "shop") })
		b.heard()
		b.sup.ScopeEnded(UnitName("created", "shop"), "inv", "success")
		close(hold)
		assert.Contains(t, b.heard(), "0s start: ok")
		assert.Equal(t, "running", b.state("shop"))
	})
}

// TestAResumeKeepsItsPlace: it waits until the agent's last words were looked at, and what is asked for after it still comes after it.
func TestAResumeKeepsItsPlace(t *testing.T) {
	supervise(t, func(b *bed) {
		b.talking()
		require.NoError(t, b.create("reports", Spec{ID: "shop"}))
		b.exit("shop", 0)
		b.sup.ScopeEnded(UnitName("reports", "shop"), "inv", "success")
		b.heard()
		looking := func(is bool) {
			require.NoError(t, b.sup.do(func() {
				b.sup.sessions["shop"].hinting = is
				b.sup.touch(b.sup.sessions["shop"])
			}))
		}
		looking(true)
		accepted := false
		b.call("resume", func(ctx context.Context) error {
			return b.sup.Resume(WhenAccepted(ctx, func() { accepted = true }), "shop")
		})
		assert.False(t, accepted)
		looking(false)
		assert.Contains(t, b.heard(), "0s resume: ok")
		assert.True(t, accepted)
	})
}
