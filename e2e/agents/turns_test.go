//go:build agents

package agents

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/testbed"
)

// TestStatus_ReportsEveryTurn runs many turns of each agent, of Claude Code without Corral's hooks,
// and expects exactly the right sequence of states: working, asking, approved, denied, interrupted,
// done.
func TestStatus_ReportsEveryTurn(t *testing.T) {
	for _, m := range []behaviour{claude, codex, copilot, gemini, opencode, qwen} {
		t.Run(m.agent, func(t *testing.T) {
			f := newFixture(t)
			f.write(".config/corral/agents/claude.agent.d/bare.conf", "[Agent]\nCommand=claude --session-id %U\n")
			f.corralctl("reload")
			s := f.run(m.agent, "turns", "--prompt", "hello")
			_, _ = s.becomes(0, "idle (turn-ended)")
			var d delays
			for n := range turns() {
				s.turnOfKind(m, n, &d)
			}
			t.Logf("%s: %d turns, %d questions: published after they are on the screen: %s; an approval %s", m.agent, turns(),
				len(d.questions), spread(d.questions), spread(d.approvals))
		})
	}
}

// turns returns how many turns of each agent are tested.
func turns() int {
	n, err := strconv.Atoi(os.Getenv("AGENT_TURNS"))
	if err != nil {
		n = 12
	}
	return n
}

// delays are how long it took until something was published.
type delays struct{ questions, approvals []time.Duration }

// turnOfKind runs the nth turn: one without a question, one with a question that is approved, one
// with a question that is denied, and one that is interrupted. It checks the published states. Some
// agents are idle for a moment before a turn, work for a moment after a denial, or report the end
// of a turn that was interrupted.
func (s *subject) turnOfKind(m behaviour, n int, d *delays) {
	s.t.Helper()
	mark, waiting := s.mark(), "waiting ("+m.wants+")"
	isIdle := func(c change) bool { return c.activity == "idle" }
	states := "working, "
	switch n % 4 {
	case 0:
		s.turn(mark, n, "")
		states += "idle (turn-ended)"
	case 1:
		s.turn(mark, n, "RUN: touch y%d && sleep 0.5")
		d.questions = append(d.questions, s.asksFor(mark, m))
		begin := time.Now()
		published, _ := s.becomes(s.approve(m), "working")
		d.approvals = append(d.approvals, published.at.Sub(begin))
		states += waiting + ", working, idle (turn-ended)"
	case 2:
		s.turn(mark, n, "RUN: touch n%d")
		_, at := s.becomes(mark, waiting)
		s.shows(m.asks)
		s.rests() // it ignores keys for a moment
		s.until(at, []string{"Escape"}, isIdle)
		states += waiting + ", idle"
	case 3:
		s.send(fmt.Sprintf("HOLD: h%d", n))
		_, at := s.becomes(mark, "working")
		s.asked(fmt.Sprintf("HOLD: h%d", n), 1)
		s.until(at, m.interrupt(), isIdle)
		states += "idle"
	}
	s.await("idle", func(now client.Session) bool { return now.Activity == "idle" })
	s.rests()
	changes, _, _ := s.since(mark)
	var published []string
	for _, c := range changes {
		published = append(published, c.String())
	}
	got := strings.TrimPrefix(strings.Join(published, ", "), "idle, ")
	if n%4 >= 2 {
		got = strings.Replace(strings.TrimSuffix(got, " (turn-ended)"), waiting+", working,", waiting+",", 1)
	}
	require.Equal(s.t, states, got, "turn %d\n%s", n, s.look())
}

// turn starts a turn in which the model replies only after the agent is published as working: a
// turn of a millisecond, which real models do not have, may not be published at all. With a
// command, the model then asks to run it.
func (s *subject) turn(mark, n int, command string) {
	s.t.Helper()
	gate := fmt.Sprintf("t%d", n)
	text := "HOLD: " + gate
	if command != "" {
		text += "\n" + fmt.Sprintf(command, n)
	}
	s.send(text)
	_, _ = s.becomes(mark, "working")
	s.model.Release(gate)
}

// until presses keys until a change that matches is published: again only if the agent has ignored
// them, because a key that comes after the change would be input for something else.
func (s *subject) until(mark int, keys []string, is func(change) bool) {
	s.t.Helper()
	for begin := time.Now(); ; {
		s.press(keys...)
		if s.within(5*time.Second, mark, is) {
			return
		}
		require.Less(s.t, time.Since(begin), 30*time.Second, "session %s does not take %q\n%s", s.id, keys, s.look())
	}
}

// spread formats the median and the maximum of durations.
func spread(all []time.Duration) string {
	if len(all) == 0 {
		return "never"
	}
	slices.Sort(all)
	last := len(all) - 1
	return fmt.Sprintf("%v median, %v at most", all[last/2].Round(time.Millisecond), all[last].Round(time.Millisecond))
}

// TestSend_WaitsForEndOfTurn sends text while the agent works: it arrives after the turn, or is
// rejected with --if-waiting.
func TestSend_WaitsForEndOfTurn(t *testing.T) {
	f := newFixture(t)
	s := f.run("claude", "busy", "--prompt", "HOLD: a")
	f.asked("HOLD: a", 1)
	s.becomes(0, "working")
	text, err := f.tryCorralctl("send", "--if-waiting", s.id, "not now")
	require.Error(t, err)
	assert.Contains(t, text, "does not wait for input")
	s.send("and then this")
	f.model.Release("a")
	f.asked("and then this", 1)
	f.asked("HOLD: a", 1)
	prompts, _ := f.model.Prompts()
	assert.NotContains(t, prompts, "not now")
	s.shows("The model has read: and then this")

	mark := s.mark()
	s.send("RUN: touch y")
	_, mark = s.becomes(mark, "waiting (permission)")
	s.shows("Do you want to proceed?")
	for begin := time.Now(); ; { // it ignores keys for a moment
		_, _ = f.tryCorralctl("send", "--if-waiting", "--no-enter", s.id, "1")
		if s.soon(mark, func(c change) bool { return c.activity != "waiting" }) {
			break
		}
		if time.Since(begin) > 10*time.Second {
			t.Fatalf("an answer that is sent is not taken\n%s", s.look())
		}
	}
	_, _ = s.becomes(mark, "idle (turn-ended)")
	assert.FileExists(t, s.workspace+"/y")
}

// TestSend_ReplacesAnInterruptedPrompt interrupts a turn before the model has replied, which makes
// some agents put its prompt back into their input line, and sends another one.
func TestSend_ReplacesAnInterruptedPrompt(t *testing.T) {
	for _, m := range []behaviour{claude, codex, copilot, gemini, opencode, qwen, droid, kilo, kimi, pi} {
		t.Run(m.agent, func(t *testing.T) {
			f := newFixture(t)
			s := f.run(m.agent, "shop", "--prompt", "hello")
			_, mark := s.becomes(0, "idle (turn-ended)")
			for n, text := range []string{"HOLD: one", "HOLD: two\nwith\n\nmore lines", "HOLD: " + strings.Repeat("long ", 60)} {
				s.send(text)
				_, mark = s.becomes(mark, "working")
				f.asked(strings.TrimSpace(text), 1)
				s.until(mark, m.interrupt(), func(c change) bool { return c.activity == "idle" })
				next := fmt.Sprintf("next %d", n)
				mark = s.mark()
				s.send(next)
				f.asked(next, 1)
				_, mark = s.becomes(mark, "idle (turn-ended)")
			}
			f.corralctl("suspend", s.id)
			f.corralctl("send", "--resume", s.id, "after the suspension")
			f.asked("after the suspension", 1)
		})
	}
}

// TestAdoption_KnowsWhatWasAnswered kills the daemon while an agent asks for permission, answers in
// the agent's terminal, and starts another daemon.
func TestAdoption_KnowsWhatWasAnswered(t *testing.T) {
	for _, m := range []behaviour{claude, codex, copilot, gemini, opencode, qwen} {
		for _, row := range []struct{ name, key, becomes string }{
			{"approved", "Enter", "idle (turn-ended)"}, {"denied", "Escape", "idle"},
		} {
			t.Run(m.agent+" "+row.name, func(t *testing.T) {
				f := newFixture(t)
				s := f.run(m.agent, "shop", "--prompt", "hello")
				_, mark := s.becomes(0, "idle (turn-ended)")
				s.send("RUN: touch y")
				s.asksFor(mark, m)
				require.NoError(t, f.daemon.Process.Kill())
				_ = f.daemon.Wait()
				s.rests() // it ignores keys for a moment
				for begin := time.Now(); strings.Contains(s.screen(), m.asks); {
					require.Less(t, time.Since(begin), timeout, "%s", s.screen())
					require.NoError(t, exec.Command("tmux", "-S", s.tmuxSocket(), "send-keys", row.key).Run())
					s.rests()
				}
				f.launch()
				s.watch()
				now := s.await("idle", func(now client.Session) bool { return now.Activity == "idle" })
				assert.Contains(t, []string{"", "turn-ended"}, now.Attention)
			})
		}
	}
}

// TestCopilot_ReportsWhatHasNoHook covers what Copilot CLI has no hook for, or one that reports too
// little: a second dialog directly after the first, a denial, an interruption, and whether it tries
// again after an error.
func TestCopilot_ReportsWhatHasNoHook(t *testing.T) {
	f := newFixture(t)
	s := f.run("copilot", "shop", "--prompt", "hello")
	_, mark := s.becomes(0, "idle (turn-ended)")
	isIdle := func(c change) bool { return c.activity == "idle" }

	s.send("RUN: touch /etc/outside")
	_, mark = s.becomes(mark, "waiting (permission)")
	assert.Contains(t, s.is("running").AttentionMessage, "/etc/outside")
	s.shows("Allow path access")
	s.until(mark, []string{"1"}, func(c change) bool { return c.activity != "waiting" })
	published, mark := s.becomes(mark, "waiting (permission)")
	shown := s.shows("Do you want to run this command?")
	t.Logf("the second dialog is published %v after it is on the screen", published.at.Sub(shown).Round(time.Millisecond))
	s.until(mark, []string{"Escape"}, isIdle)
	assert.NoFileExists(t, "/etc/outside")

	mark = s.mark()
	s.send("HOLD: forever")
	_, mark = s.becomes(mark, "working")
	f.asked("HOLD: forever", 1)
	s.until(mark, copilot.interrupt(), isIdle)

	mark = s.mark()
	s.send("FAIL: 529 2")
	s.await("retrying", func(now client.Session) bool { return now.StatusText == "retrying (The model has no time)" })
	_, at := s.becomes(mark, "idle (turn-ended)")
	changes, _, _ := s.since(mark)
	assert.Equal(t, []string{"working", "idle (turn-ended)"}, []string{changes[0].String(), changes[at-mark-1].String()})
	assert.Len(t, changes, 2, "an error that is tried again is not published: %v", changes)
}

// TestConversation_IsSeparateForEachSession runs two sessions of an agent in one directory, which
// keep their own conversations after both are killed, or suspended, and resumed.
func TestConversation_IsSeparateForEachSession(t *testing.T) {
	for _, m := range []behaviour{claude, codex, copilot, opencode, qwen} {
		t.Run(m.agent, func(t *testing.T) {
			f := newFixture(t)
			one := f.run(m.agent, "one", "--prompt", "my name is Anna")
			two := f.runIn(one.workspace, m.agent, "two", "--prompt", "my name is Berta")
			for _, s := range []*subject{one, two} {
				_, _ = s.becomes(0, "idle (turn-ended)")
				s.known()
				if m.agent == "claude" {
					s.saved()
				}
			}
			assert.NotEqual(t, one.known(), two.known())
			resume := func() {
				f.corralctl("resume", "one", "two")
				one.shows("my name is Anna")
				two.shows("my name is Berta")
				assert.NotContains(t, one.screen(), "Berta")
				assert.NotContains(t, two.screen(), "Anna")
			}
			for _, s := range []*subject{one, two} {
				s.kill(9)
				s.is("failed")
			}
			resume()
			f.corralctl("suspend", "one", "two")
			resume()
		})
	}
}

// TestResume_KeepsGeminisConversationsInOneDirectory: at its start, Gemini CLI deletes the files of
// the conversations of others that it takes for empty, unless it is configured not to. A resume in
// another minute than that in the name of the file creates such an empty file.
func TestResume_KeepsGeminisConversationsInOneDirectory(t *testing.T) {
	f := newFixture(t)
	one := f.run("gemini", "one", "--prompt", "my name is Anna")
	two := f.runIn(one.workspace, "gemini", "two", "--prompt", "my name is Berta")
	_, _ = one.becomes(0, "idle (turn-ended)")
	_, _ = two.becomes(0, "idle (turn-ended)")
	f.corralctl("suspend", "one", "two")
	files, err := filepath.Glob(f.dir + "/.gemini/tmp/*/chats/session-*.jsonl")
	require.NoError(t, err)
	require.Len(t, files, 2)
	for _, file := range files {
		id := file[len(file)-len("-01234567.jsonl"):]
		require.NoError(t, os.Rename(file, filepath.Join(filepath.Dir(file), "session-2026-01-01T00-00"+id)))
	}
	for range 3 {
		f.corralctl("resume", "one", "two")
		one.shows("my name is Anna")
		two.shows("my name is Berta")
		testbed.Poll(t, "both are ready", func() bool {
			return one.is("running").Activity == "idle" && two.is("running").Activity == "idle"
		})
		for _, s := range []*subject{one, two} { // it deletes files before it accepts a prompt
			mark := s.mark()
			s.send("hello again")
			_, _ = s.becomes(mark, "idle (turn-ended)")
		}
		f.corralctl("suspend", "one", "two")
	}
}

// TestResume_ContinuesNewConversation starts another conversation inside the agent and expects that
// a resumed agent continues that one.
func TestResume_ContinuesNewConversation(t *testing.T) {
	for _, row := range []struct {
		behaviour
		begins string
	}{{claude, "/clear"}, {codex, "/new"}, {copilot, "/new"}, {droid, "/new"}, {kimi, "/new"}, {pi, "/new"}} {
		t.Run(row.agent, func(t *testing.T) {
			f := newFixture(t)
			s := f.run(row.agent, "shop", "--prompt", "my name is Anna")
			_, _ = s.becomes(0, "idle (turn-ended)")
			first := s.known()
			s.send(row.begins)
			testbed.Poll(t, "the screen is empty", func() bool { return !strings.Contains(s.screen(), "Anna") })
			s.send("my name is Berta")
			s.shows("The model has read: my name is Berta")
			second := s.await("in another conversation",
				func(now client.Session) bool { return now.ConversationId != first }).ConversationId
			switch row.agent {
			case "claude":
				s.saved()
			case "kimi":
				s.saves("The model has read: my name is Berta")
			}
			s.kill(syscall.SIGKILL)
			s.is("failed")
			f.corralctl("resume", "shop")
			s.shows("The model has read: my name is Berta")
			assert.NotContains(t, s.screen(), "Anna")
			assert.Equal(t, second, s.is("running").ConversationId)
		})
	}
}

// TestAttention_ReportsQuestion lets the model ask the user a question.
func TestAttention_ReportsQuestion(t *testing.T) {
	for agent, tool := range map[string]string{ // Copilot CLI does not report the question's text
		"claude":   `AskUserQuestion {"questions":[{"question":"Which color?","header":"Color","multiSelect":false,"options":[{"label":"Red","description":"r"},{"label":"Blue","description":"b"}]}]}`,
		"copilot":  `ask_user {"message":"Which color?","requestedSchema":{"type":"object","properties":{"color":{"type":"string","enum":["Red","Blue"]}},"required":["color"]}}`,
		"opencode": `question {"questions":[{"question":"Which color?","header":"Color","options":[{"label":"Red","description":"r"},{"label":"Blue","description":"b"}]}]}`,
		"kilo":     `question {"questions":[{"question":"Which color?","header":"Color","options":[{"label":"Red","description":"r"},{"label":"Blue","description":"b"}]}]}`,
		"qwen":     `ask_user_question {"questions":[{"question":"Which color?","header":"Color","multiSelect":false,"options":[{"label":"Red","description":"r"},{"label":"Blue","description":"b"}]}]}`,
	} {
		t.Run(agent, func(t *testing.T) {
			f := newFixture(t)
			s := f.run(agent, "shop", "--prompt", "hello")
			_, mark := s.becomes(0, "idle (turn-ended)")
			s.send("TOOL: " + tool)
			_, mark = s.becomes(mark, "waiting (question)")
			if now := s.is("running"); agent != "copilot" {
				assert.Contains(t, now.AttentionMessage, "Which color?")
			}
			s.shows("Which color?")
			for begin := time.Now(); ; { // it ignores keys for a moment
				s.press("Enter")
				if s.soon(mark, func(c change) bool { return c.String() == "idle (turn-ended)" }) {
					break
				}
				require.Less(t, time.Since(begin), 30*time.Second, "session %s does not take an answer\n%s", s.id, s.look())
			}
			s.shows("The command was run.")
		})
	}
}

// TestAttention_ReportsModelFailure lets requests to the model fail until the agent gives up.
func TestAttention_ReportsModelFailure(t *testing.T) {
	for _, agent := range []string{"claude", "codex", "copilot", "qwen", "kimi", "pi"} {
		t.Run(agent, func(t *testing.T) {
			f := newFixture(t)
			s := f.run(agent, "shop", "-E", "CLAUDE_CODE_MAX_RETRIES=1", "--prompt", "hello")
			_, mark := s.becomes(0, "idle (turn-ended)")
			s.send("FAIL: 400")
			_, _ = s.becomes(mark, "idle (error)")
		})
	}
}

// TestAttention_ReportsUsageLimit lets the model reach a usage limit: some agents ask in a dialog
// how to continue. Then it continues them before the limit has reset.
func TestAttention_ReportsUsageLimit(t *testing.T) {
	const twoHours, threeDays = "LIMIT: 7200", "LIMIT: 259200"
	for _, row := range []struct {
		agent, prompt, status, message, shows string
		after                                 time.Duration
	}{
		{"claude", twoHours, "idle (limit)", "You've hit your 5-hour limit · resets ", "Usage limit reached", 2 * time.Hour},
		{
			"claude", threeDays, "waiting (limit)", "You've hit your weekly limit · resets ",
			"Stop and wait for limit", 72 * time.Hour,
		},
		{"codex", twoHours, "waiting (limit)", "Approaching rate limits Switch to ", "2. Keep current model", 2 * time.Hour},
		{"gemini", twoHours, "waiting (limit)", "Access resets at ", "1. Keep trying", 2 * time.Hour},
		{
			"opencode", twoHours, "idle (limit)", "The usage limit has been reached", "retrying in 1h",
			2 * time.Hour,
		},
	} {
		t.Run(row.agent+" "+row.prompt, func(t *testing.T) {
			f := newFixture(t)
			options := []string{"--prompt", "hello", "--label", "on-limit=continue"}
			if row.agent == "claude" { // with a subscription
				options = append(options, "-E", "CLAUDE_CODE_OAUTH_TOKEN=sk-ant-oat01-none", "-E", "ANTHROPIC_AUTH_TOKEN=")
			}
			s := f.run(row.agent, "shop", options...)
			_, mark := s.becomes(0, "idle (turn-ended)")
			s.send(row.prompt)
			shown := s.shows(row.shows)
			published, _ := s.becomes(mark, row.status)
			t.Logf("published %v after it is on the screen", published.at.Sub(shown).Round(time.Millisecond))
			assert.Contains(t, s.is("running").AttentionMessage, row.message)
			now := s.await("the time of the reset", func(now client.Session) bool { return now.AttentionUntil != 0 })
			assert.WithinDuration(t, time.Now().Add(row.after), time.UnixMicro(int64(now.AttentionUntil)), 2*time.Minute)

			assert.NotZero(t, now.ContinueTimestamp)
			if row.agent == "claude" || row.agent == "codex" { // it queries its terminal, which nobody has typed
				f.corralctl("suspend", "shop")
				f.corralctl("resume", "shop")
				s.shows("The model has read: hello")
				s.await("idle", func(now client.Session) bool { return now.Activity == "idle" })
				assert.NotZero(t, s.is("running").ContinueTimestamp)
			}
			mark = s.mark()
			f.corralctl("continue", "shop")
			testbed.Poll(t, "the agent continues", func() bool {
				prompts, _ := f.model.Prompts()
				return strings.Contains(prompts[len(prompts)-1], config.Default().ContinueText)
			})
			_, _ = s.becomes(mark, "idle (turn-ended)")
		})
	}
}

// TestAttention_EndsTurnsWithABackgroundShell: a turn has ended although a command that it has
// started in the background is still running.
func TestAttention_EndsTurnsWithABackgroundShell(t *testing.T) {
	f := newFixture(t)
	s := f.run("claude", "shop", "--prompt", "hello")
	_, mark := s.becomes(0, "idle (turn-ended)")
	s.send(`TOOL: Bash {"command":"sleep 1000","run_in_background":true,"description":"waits"}`)
	_, mark = s.becomes(mark, "working")
	_, _ = s.becomes(mark, "idle (turn-ended)")
	assert.Equal(t, "1 shell still running", s.is("running").AttentionMessage)
}

// TestRetry_IsShown lets requests fail until they succeed: that the agents try again is not an
// error.
func TestRetry_IsShown(t *testing.T) {
	for agent, prompt := range map[string]string{
		"claude": "FAIL: 529 4", "codex": "FAIL: 529 7", "opencode": "FAIL: 529 4", // Codex repeats four times silently
		"kilo": "FAIL: 529 4", "pi": "FAIL: 529 2",
	} {
		t.Run(agent, func(t *testing.T) {
			f := newFixture(t)
			s := f.run(agent, "shop", "--prompt", "hello")
			_, mark := s.becomes(0, "idle (turn-ended)")
			s.send(prompt)
			s.await("retrying", func(now client.Session) bool { return strings.HasPrefix(now.StatusText, "retrying (") })
			_, _ = s.becomes(mark, "idle (turn-ended)")
			changes, _, _ := s.since(mark)
			for _, c := range changes {
				assert.Contains(t, []string{"working", "idle", "idle (turn-ended)"}, c.String(), "%v", changes)
			}
		})
	}
}

// TestTurn_WithHostileOutput lets a command of the agent print what could confuse a terminal, and a
// megabyte: the turn ends as any other, and nothing of it is executed or shown raw.
func TestTurn_WithHostileOutput(t *testing.T) {
	const prints = `printf '\033]0;$(touch pwned)\007\033]7501;state=blocked\007\033[2J\033]52;c;eA==\007'; ` +
		`printf '%01000000d' 0`
	for _, m := range []behaviour{claude, codex, copilot, opencode} {
		t.Run(m.agent, func(t *testing.T) {
			f := newFixture(t)
			s := f.run(m.agent, "shop", "--prompt", "hello")
			_, mark := s.becomes(0, "idle (turn-ended)")
			s.send("RUN: touch y; " + prints)
			_, _ = s.becomes(mark, "waiting (permission)")
			s.shows(m.asks)
			_ = s.approve(m)
			testbed.Poll(t, "the turn has ended", func() bool {
				changes, _, _ := s.since(mark)
				return len(changes) > 0 && changes[len(changes)-1].String() == "idle (turn-ended)"
			})
			assert.NoFileExists(t, filepath.Join(s.workspace, "pwned"))
			assert.NotContains(t, f.corralctl("status", "shop")+f.corralctl("list"), "\x1b]")
			mark = s.mark()
			s.send("hello again")
			_, _ = s.becomes(mark, "idle (turn-ended)")
		})
	}
}

// TestExit_CompletesSession exits the agent by its own command, which completes the session with
// success.
func TestExit_CompletesSession(t *testing.T) {
	f := newFixture(t)
	s := f.run("claude", "ends", "--prompt", "hello")
	_, _ = s.becomes(0, "idle (turn-ended)")
	s.send("/exit")
	now := s.is("completed")
	assert.Equal(t, "success", now.Result)
}

// TestSetup_IsReportedAtFirstStart starts agents without any configuration. They first ask for
// something that every conversation needs, which is published as attention.
func TestSetup_IsReportedAtFirstStart(t *testing.T) {
	f := newFixture(t)
	f.bare = true
	for agent, dialog := range map[string]string{
		"claude": "Choose the text style", "codex": "Sign in with ChatGPT",
		"gemini": "Do you trust the files in this folder?", "copilot": "Do you trust the files in this folder?",
	} {
		s := f.run(agent, agent, "--prompt", "hello")
		s.shows(dialog)
		begin := time.Now()
		now := s.awaitAttention()
		t.Logf("%s: %s, reported by %s after %v: %q", agent, now.Attention, now.AttentionSource,
			time.Since(begin).Round(time.Second), now.AttentionMessage)
		assert.Contains(t, []string{"setup", "auth", "question", "permission"}, now.Attention)
		s.shows(dialog) // the prompt was not typed as an answer
		f.corralctl("stop", agent)
	}
	prompts, _ := f.model.Prompts()
	assert.Empty(t, prompts)
}

// TestStop_LeavesOtherSessionOfSameAgentRunning stops one of two sessions of Codex, which must not
// share a process.
func TestStop_LeavesOtherSessionOfSameAgentRunning(t *testing.T) {
	f := newFixture(t)
	one := f.run("codex", "one", "--prompt", "hello")
	two := f.runIn(one.workspace, "codex", "two", "--prompt", "hello too")
	for _, s := range []*subject{one, two} {
		_, _ = s.becomes(0, "idle (turn-ended)")
	}
	f.corralctl("stop", "one")
	one.is("stopped")
	mark := two.mark()
	two.send("are you still there")
	_, _ = two.becomes(mark, "idle (turn-ended)")
	two.shows("The model has read: are you still there")
}
