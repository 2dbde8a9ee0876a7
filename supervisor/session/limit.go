package session

import (
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	"github.com/corrald/corral/dbusapi/word"
)

// Limit is a usage limit that an agent has reached. The zero value stands for none.
type Limit struct {
	Run       string        `json:"run"`            // the run whose agent has reached it
	Until     time.Time     `json:"until,omitzero"` // when it resets, by the wall clock; zero if that is unknown
	At        time.Time     `json:"at"`             // when the agent has reported it
	Monotonic time.Duration `json:"monotonic,omitzero"`
	// Typed reports that somebody has typed, or has sent input, since: Corral does not.
	Typed bool `json:"typed,omitempty"`
}

// Typed reports that somebody has typed in the terminal of the run's agent, or has sent it input.
// Source: the shim, which reports the first input after each report.
type Typed struct {
	Run       string
	Monotonic time.Duration
}

func (e Typed) apply(s *Session) {
	isLater := s.Limit.Run != e.Run || e.Monotonic > s.Limit.Monotonic
	if s.run(e.Run) != nil && s.Limit != (Limit{}) && isLater {
		s.Limit.Typed = true
	}
}

// ContinueTextSent reports that the agent was given ContinueText= after the limit that reset at
// Until.
type ContinueTextSent struct {
	Until time.Time
}

func (e ContinueTextSent) apply(s *Session) { s.Continued = e.Until }

// updateLimit determines after an event which limit the agent has reached. The limit of an agent
// that has ended remains, for the run that continues its conversation.
func (s *Session) updateLimit() {
	hasReport := s.received.haveLimit() || s.Run != nil && s.Run.Reported.Reason == word.Limit
	if s.Limit == (Limit{}) && !hasReport {
		return
	}
	switch a, since := s.attention(); {
	case a.Reason == word.Limit:
		if l := s.Limit; l.Run != s.Run.ID || !l.At.Equal(a.Since) || !l.Until.Equal(a.Until) {
			s.Limit = Limit{Run: s.Run.ID, Until: a.Until, At: a.Since, Monotonic: since}
		}
	case a.Reason != "" && a.Source == "": // its state needs attention first
	case s.isLimitOver():
		s.Limit = Limit{}
	}
}

// haveLimit reports whether any of the reports is about a limit.
func (rs reports) haveLimit() bool {
	return slices.ContainsFunc(rs, func(r sourceReport) bool { return r.Reason == word.Limit })
}

// isLimitOver reports whether the agent has continued since it reached the limit: it does not
// report the limit any more or, if a later run continues its conversation, works.
// What an agent reports while it is being stopped does not count: many report that they are idle.
func (s *Session) isLimitOver() bool {
	// A new daemon waits for the reports that the shim repeats.
	if !s.Run.AgentAlive() || s.Run.Intent != NoIntent || len(s.received) == 0 {
		return false
	}
	activity, source, _ := s.Activity()
	return s.Limit.Run == s.Run.ID || activity == word.Working && source != FromOutput
}

// ShowsLimit reports whether a dialog about a limit is on the agent's screen.
func (s *Session) ShowsLimit() bool {
	screen, _ := s.received.from(FromScreen)
	return s.Run.AgentAlive() && screen.Reason == word.Limit
}

// Times of ContinueAt.
const (
	// continueSpread is over which time the agents continue that wait for the same reset.
	continueSpread = 2 * time.Minute
	// sameReset is how much two times may differ that are of the same reset.
	sameReset = 10 * time.Minute
)

// ContinueAt returns when the agent is to be given ContinueText= because its usage limit has reset
// by then; zero if it must not be given it. Grace is how much later that is if the agent that has
// reached the limit is still alive: some continue by themselves.
//
// The agent is not given the text if somebody has typed since, and not twice after the same reset.
// A shim of an older version does not report what is typed.
func (s *Session) ContinueAt(grace time.Duration) time.Time {
	l, isAlive := s.Limit, s.Run.AgentAlive()
	state := s.View().State
	switch {
	case l.Until.IsZero() || l.Typed || l.Until.Sub(s.Continued).Abs() < sameReset,
		isAlive && !s.Run.ShimSendsTyped,
		!isAlive && !s.AwaitsAgent() && state != Suspended,
		!s.Archived.IsZero():
		return time.Time{}
	}
	at := l.Until.Add(continueDelay(s))
	if isAlive && l.Run == s.Run.ID {
		at = at.Add(grace)
	}
	return at
}

// continueDelay returns a part of continueSpread, which is random for each session and reset, and
// the same for every daemon.
func continueDelay(s *Session) time.Duration {
	hash := fnv.New64a()
	_, _ = hash.Write(strconv.AppendInt([]byte(s.ID), s.Created.UnixMicro()^s.Limit.Until.Unix(), 10))
	return time.Duration(hash.Sum64() % uint64(continueSpread.Seconds()) * uint64(time.Second))
}
