package main

import "time"

// When Enter is pressed after a text.
const (
	// The delays below, keyPause and inputWait do not include the time in which the agent is running,
	// up to maxRunning, because it may not have processed what it has read: on a busy machine, a
	// program that waits for a CPU for half a second would process a text and the Enter after it at
	// once.
	maxRunning = 5 * time.Second

	// enterAfterKeys is the delay of Enter after the agent has read a text. A program without
	// bracketed paste recognizes a paste only by its speed, and some treat an Enter within 100 ms as
	// one of its line ends.
	enterAfterKeys = 150 * time.Millisecond

	// Some programs treat an Enter as part of a paste if it follows too soon after they have processed
	// the paste (Gemini CLI: 40 ms plus the time that it needs to draw). The shim assumes that a
	// program has processed the paste when it prints something. Enter is pressed enterAfterEcho later,
	// and later still if the program was slow. If the program prints nothing, Enter is pressed
	// enterUnseen after it has read the paste.
	enterAfterEcho = 150 * time.Millisecond
	enterUnseen    = 400 * time.Millisecond
)

// checkRead checks whether the agent has read the text after which Enter is to be pressed.
func (s *shim) checkRead(now time.Time) {
	if len(s.input.texts) == 0 || s.input.texts[0].stage != textUnread {
		return
	}
	t := s.input.texts[0]
	if unread, e := sysUnread(s.inner.slave); e == 0 && unread > 0 {
		t.readAt, t.echoedAt = time.Time{}, time.Time{}
	} else {
		if t.readAt.IsZero() {
			t.readAt = t.checkedAt // it may have been read right after the previous check
		}
		if t.echoedAt.IsZero() && !s.lastOutput.Before(t.readAt) {
			t.echoedAt = t.checkedAt
		}
	}
	t.excludeRunning(now, s.isAgentRunning())
	if now.After(t.deadline) || !t.readAt.IsZero() && now.After(t.enterTime()) {
		t.stage = textWritten
		return
	}
	s.timers.set(timerInput, now.Add(inputTick))
}

// excludeRunning postpones Enter, or the next key, by the time since the previous check if the
// agent is running, and else by the delay of this check, during which the agent may have been
// running.
func (t *text) excludeRunning(now time.Time, isRunning bool) {
	excluded := now.Sub(t.checkedAt)
	if !isRunning {
		excluded -= 2 * inputTick
	}
	t.checkedAt = now
	excluded = min(excluded, maxRunning-t.excluded)
	if excluded <= 0 {
		return
	}
	t.excluded += excluded
	for _, at := range []*time.Time{&t.readAt, &t.echoedAt, &t.deadline} {
		if !at.IsZero() {
			*at = at.Add(excluded)
		}
	}
}

// enterTime returns when Enter can be pressed after a text that the agent has read.
func (t *text) enterTime() time.Time {
	switch {
	case !t.paste:
		return t.readAt.Add(enterAfterKeys)
	case t.echoedAt.IsZero():
		return t.readAt.Add(enterUnseen)
	}
	return t.echoedAt.Add(enterAfterEcho + 2*t.echoedAt.Sub(t.readAt))
}
