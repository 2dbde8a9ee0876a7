package main

import (
	"time"

	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/shimwire"
)

// The sources of status reports in the shim. The output itself, from which the shim derives Idle
// and Working, is not one of them.
const (
	sourceOSC7501 = iota
	sourceNotify
	sourceTitle
	sourceBell
	sourceScreen
	sourceCount
)

var sourceNames = [sourceCount]string{
	sourceOSC7501: word.OSC7501,
	sourceNotify:  word.Notify,
	sourceTitle:   word.Title,
	sourceBell:    word.Bell,
	sourceScreen:  word.Screen,
}

// agentStatus is the agent's status according to one source.
type agentStatus struct {
	activity, reason, text string
	until                  int64 // Unix time when the usage limit resets that is the reason; 0 if unknown
}

// report is the last status report of a source.
type report struct {
	agentStatus
	since  time.Time
	seq    uint32 // 0 if the source has never reported anything
	isSent bool   // it was sent to the daemons
}

// Rate limit for reports, so that an agent whose status changes constantly does not wake the daemon
// as often: reportBurst at once, then one each reportInterval. A delayed report contains the status
// at the time of sending. No agent that works for a user changes its status faster than that, so no
// status is missed in practice.
const (
	reportBurst    = 32
	reportInterval = 100 * time.Millisecond
)

// setStatus sets the agent's status according to a source, and reports it if it has changed.
func (s *shim) setStatus(source int, status agentStatus) {
	if s.reports[source].agentStatus != status {
		s.reportStatus(source, status)
	}
}

// reportStatus is setStatus for a status that is reported even if it has not changed: the user may
// have dealt with the previous report.
func (s *shim) reportStatus(source int, status agentStatus) {
	now := time.Now()
	s.lastSeq++
	s.reports[source] = report{agentStatus: status, since: now, seq: s.lastSeq}
	if isExplicit(source, status) {
		s.endSetup()
	}
	s.sendReports(now)
	s.tryPrompt(now)
}

// sendReports sends the pending reports as far as the rate limit permits.
func (s *shim) sendReports(now time.Time) {
	for i := range s.reports {
		last := &s.reports[i]
		if last.seq == 0 || last.isSent {
			continue
		}
		if wait := s.nextReportAt.Add(-(reportBurst - 1) * reportInterval); wait.After(now) {
			s.timers.set(timerReport, wait)
			return
		}
		if s.nextReportAt.Before(now) {
			s.nextReportAt = now
		}
		s.nextReportAt = s.nextReportAt.Add(reportInterval)
		last.isSent, s.typedSent = true, false
		s.broadcast(s.reportMessage(i))
	}
}

func (s *shim) reportMessage(source int) shimwire.Message {
	last := &s.reports[source]
	m := shimwire.Message{
		Kind: shimwire.StatusReport, Source: sourceNames[source],
		Activity: last.activity, Reason: last.reason, Text: last.text,
		Since: last.since, Seq: last.seq,
	}
	if last.until != 0 {
		m.Until = time.Unix(last.until, 0)
	}
	return m
}

// noteTyped records that somebody has typed, or has sent input, and reports it: for the first input
// since the last report, and not for each key.
func (s *shim) noteTyped() {
	s.lastTyped = time.Now()
	if !s.typedSent {
		s.typedSent = true
		s.broadcast(s.typedMessage())
	}
}

func (s *shim) typedMessage() shimwire.Message {
	return shimwire.Message{Kind: shimwire.Typed, Since: s.lastTyped}
}

// sendCurrentState sends everything that was sent before to a client that has just connected.
func (s *shim) sendCurrentState(c *conn) {
	s.send(c, s.hello())
	if !s.readyAt.IsZero() {
		s.send(c, shimwire.Message{Kind: shimwire.Ready, Since: s.readyAt})
	}
	if s.prompt.isQueued {
		s.send(c, shimwire.Message{Kind: shimwire.Prompted})
	}
	for i := range s.reports {
		if s.reports[i].isSent {
			s.send(c, s.reportMessage(i))
		}
	}
	if !s.lastTyped.IsZero() {
		s.send(c, s.typedMessage())
	}
}

// bellTail is how long output may continue after a bell that remains in effect: a program that
// rings also draws its question.
const bellTail = time.Second

// handleBell handles a bell or a notification, which has a text. It remains in effect until the
// agent continues. A bell that comes with a notification does not remove its text.
func (s *shim) handleBell() {
	s.scanner.hasBell = false
	text := s.bellText
	if text == "" && s.lastOutput.Sub(s.lastBell) <= bellTail {
		text = s.reports[sourceBell].text
	}
	s.bellText = ""
	set := s.setStatus
	if s.lastOutput.Sub(s.lastBell) > bellTail {
		set = s.reportStatus // another bell, even if the agent was never silent in between
	}
	s.lastBell = s.lastOutput
	set(sourceBell, agentStatus{reason: word.Bell, text: text})
}

// clearOldBell is called when the agent has fallen silent or prints again since the given time. It
// ends the effect of a bell before that.
func (s *shim) clearOldBell(since time.Time) {
	if since.Sub(s.lastBell) > bellTail {
		s.setStatus(sourceBell, agentStatus{})
	}
}
