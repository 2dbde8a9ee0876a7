package session

import (
	"slices"
	"strings"
	"time"
)

// Source is who has told what an agent does and whether it wants a person, as in the AttentionSource property.
type Source string

const (
	FromOSC7501 Source = "osc7501" // the shim: the agent says so in its output
	FromReport  Source = "report"  // the agent's hooks, on the bus
	FromNotify  Source = "notify"  // the shim: the agent says so by sd_notify(3)
	FromTitle   Source = "title"   // the shim: of the agent's terminal
	FromBell    Source = "bell"    // the shim
	FromOutput  Source = "output"  // the shim: whether there is any

	FromScreen Source = "screen" // the shim: the agent says nothing, and its output shows a dialog; the property calls it output
)

// Sources has every source, the strongest first. The strongest one that has something to say decides. An agent's definition may leave out some, and have
// others first, but for the two last.
var Sources = []Source{FromOSC7501, FromReport, FromNotify, FromTitle, FromBell, FromScreen, FromOutput}

// Public returns the source as the AttentionSource property has it.
func (f Source) Public() string {
	if f == FromScreen {
		f = FromOutput
	}
	return string(f)
}

// What an agent does, as in the Activity property.
const (
	Unknown = "unknown" // no agent is alive, or nothing was told yet
	Working = "working"
	Idle    = "idle"
	Waiting = "waiting" // for a person
)

// The reasons why a session wants a person, as in the Attention property. Those that follow from its state are called as the state is.
const (
	Permission = "permission"
	Question   = "question"
	Auth       = "auth"
	Setup      = "setup"
	TurnEnded  = "turn-ended"
	ErrorShown = "error"
	BellRang   = "bell"
)

// WordReasons are the reasons that an agent can give. The others are not for it to say.
var WordReasons = []string{Permission, Question, Auth, Setup, TurnEnded, ErrorShown}

// Word is what one source has said last of the agent that is alive. A word stands until the same source says another one.
type Word struct {
	Activity string    `json:"activity,omitempty"` // Working, Idle or Waiting; "" if it says nothing of that
	Reason   string    `json:"reason,omitempty"`   // why it wants a person, "" if it does not
	Message  string    `json:"message,omitempty"`  // for that person
	At       time.Time `json:"at"`

	Monotonic time.Duration `json:"monotonic,omitzero"` // the same moment by CLOCK_MONOTONIC; 0 in a record of an older version

	Seq uint64 `json:"seq"` // grows with each word of its source within a run: the clock may be set back, this is not
}

// words are the last ones of some sources, which are few: of most agents there is one. They are never changed, so that copies may share them.
type words []sourceWord

type sourceWord struct {
	source Source
	Word
	worked time.Duration // by CLOCK_MONOTONIC: when it said last that the agent works, 0 if it did not
}

func (ws words) of(source Source) (Word, bool) {
	for _, w := range ws {
		if w.source == source {
			return w.Word, true
		}
	}
	return Word{}, false
}

// with returns the words with this one for its source.
func (ws words) with(source Source, w Word) words {
	more := make(words, 0, len(ws)+1)
	more = append(more, ws...)
	i := slices.IndexFunc(more, func(have sourceWord) bool { return have.source == source })
	if i < 0 {
		i = len(more)
		more = append(more, sourceWord{source: source})
	}
	more[i].Word = w
	if w.Activity == Working {
		more[i].worked = w.Monotonic
	}
	return more
}

// worked tells when a source has said last that the agent works.
func (ws words) worked(source Source) time.Duration {
	for _, w := range ws {
		if w.source == source {
			return w.worked
		}
	}
	return 0
}

// asks tells whether the word asks for a person.
func (w Word) asks() bool { return w.Reason != "" || w.Activity == Waiting }

// Seqs is a word of each source that asks for a person, by its Seq; 0 is none.
type Seqs struct {
	OSC7501 uint64 `json:"osc7501,omitempty"`
	Report  uint64 `json:"report,omitempty"`
	Notify  uint64 `json:"notify,omitempty"`
	Title   uint64 `json:"title,omitempty"`
	Bell    uint64 `json:"bell,omitempty"`
	Screen  uint64 `json:"screen,omitempty"`
}

// of returns the place of a source's Seq.
func (q *Seqs) of(source Source) *uint64 {
	switch source {
	case FromOSC7501:
		return &q.OSC7501
	case FromReport:
		return &q.Report
	case FromNotify:
		return &q.Notify
	case FromTitle:
		return &q.Title
	case FromBell:
		return &q.Bell
	case FromScreen:
		return &q.Screen
	}
	return new(uint64) // the output asks for nobody
}

// include makes each of them the later one of the two.
func (q *Seqs) include(other Seqs) {
	for _, source := range Sources {
		*q.of(source) = max(*q.of(source), *other.of(source))
	}
}

// Said tells what a source says of the run's agent.
type Said struct {
	Run    string
	Source Source
	Word
}

// AgentReady tells that an agent which says so itself is ready (Type=notify).
type AgentReady struct {
	Run string
	At  time.Time
}

// Acknowledged tells that a person has taken note of what the session wants attention for: of its state, and of the words that were said until then.
type Acknowledged struct {
	Run   string
	State State // "" if it was none that wants attention
	Words Seqs  // the last ones
	At    time.Time
	On    Boot // the boot of At
}

// Answered tells that the agent was given input after these words. What it asked for in them is settled, unless it tells that itself.
type Answered struct {
	Run   string
	Words Seqs
}

func (e Said) apply(s *Session) {
	r := s.run(e.Run)
	if r == nil {
		return
	}
	if known, ok := s.word(e.Source); ok && e.Seq < known.Seq {
		return
	}
	if e.Source == FromReport {
		r.Reported = e.Word
		return
	}
	if s.repeats(e) {
		seq := e.Seq
		e.Word, _ = s.word(e.Source)
		e.Word.Seq = seq
	}
	s.heard = s.heard.with(e.Source, e.Word)
	if s.overtaken(FromReport, r.Reported) {
		r.Overtaken = r.Reported.Seq // what was heard is not kept
	}
}

// repeats tells whether a shim tells once more what the agent has asked for before, and nobody has dealt with that: then it asks for it since then. A bell that
// rings again, and a program that asks again by sd_notify(3), count as new ones otherwise.
func (s *Session) repeats(e Said) bool {
	last, known := s.word(e.Source)
	return known && (e.Source == FromBell || e.Source == FromNotify) && e.asks() &&
		last.Activity == e.Activity && last.Reason == e.Reason && last.Message == e.Message &&
		!s.settled(e.Source, last) && !s.acknowledged(e.Source, last)
}

func (e AgentReady) apply(s *Session) {
	if r := s.run(e.Run); r != nil && r.Ready.IsZero() {
		r.Ready = e.At
	}
}

func (e Acknowledged) apply(s *Session) {
	r := s.run(e.Run)
	if r == nil && (s.Run != nil || e.Run != "") {
		return
	}
	if e.State != "" && s.Seen != e.State {
		s.Seen, s.SeenAt, s.SeenOn = e.State, e.At, e.On
	}
	if r != nil {
		r.Acknowledged.include(e.Words)
	}
}

func (e Answered) apply(s *Session) {
	if r := s.run(e.Run); r != nil {
		r.Answered.include(e.Words)
	}
}

// word returns what a source has said last.
func (s *Session) word(source Source) (Word, bool) {
	if source != FromReport {
		return s.heard.of(source)
	}
	if s.Run == nil {
		return Word{}, false
	}
	return s.Run.Reported, s.Run.Reported.Seq > 0
}

// StatusText returns what the agent says of itself by STATUS= (sd_notify(3)), "" if it is not alive.
func (s *Session) StatusText() string {
	if !s.Run.AgentAlive() {
		return ""
	}
	w, _ := s.heard.of(FromNotify)
	return w.Message
}

// LastOutput returns when the agent has printed something last before it fell silent, or when it began to print again; zero if it is not alive.
func (s *Session) LastOutput() time.Time {
	if !s.Run.AgentAlive() {
		return time.Time{}
	}
	w, _ := s.heard.of(FromOutput)
	return w.At
}

// TurnEnded tells whether all that the agent waits for is its next turn.
func (s *Session) TurnEnded() bool {
	_, w, ok := s.decides()
	return ok && w.Reason == TurnEnded
}

// Report returns the word that a report is, and whether it says anything new: what was said before, and is still to be answered or acknowledged, it
// does not.
func (s *Session) Report(w Word) (word Word, changed bool) {
	last, known := s.word(FromReport)
	w.Seq = last.Seq + 1
	same := known && last.Activity == w.Activity && last.Reason == w.Reason && last.Message == w.Message
	if same && (!w.asks() || !s.settled(FromReport, last) && !s.acknowledged(FromReport, last)) {
		return last, false
	}
	return w, true
}

// Asking returns the words that ask for a person and were not answered yet, by source.
func (s *Session) Asking() Seqs {
	var asking Seqs
	for _, source := range Sources {
		if w, ok := s.word(source); ok && w.asks() && !s.settled(source, w) {
			*asking.of(source) = w.Seq
		}
	}
	return asking
}

// settled tells whether the agent was answered after the word, or, of a bell, whether somebody has looked. An agent that tells itself what it does goes on
// asking until it says so: a key that it did not take, as many do not for a moment after they have put a question, is no answer.
func (s *Session) settled(source Source, w Word) bool {
	if source == FromOSC7501 {
		return false
	}
	return *s.Run.Answered.of(source) >= w.Seq || source == FromBell && s.acknowledged(source, w) || s.overtaken(source, w)
}

// overtaken tells whether the agent has gone on since it asked by this word, as a stronger source has said: one that may have nothing to say by now.
func (s *Session) overtaken(source Source, w Word) bool {
	if !w.asks() || w.Monotonic == 0 {
		return false
	}
	if source == FromReport && w.Seq != 0 && s.Run.Overtaken >= w.Seq {
		return true
	}
	for _, stronger := range s.sources() {
		switch {
		case stronger == source:
			return false
		case s.heard.worked(stronger) > w.Monotonic:
			return true
		}
	}
	return false
}

// Answered tells whether the agent was given input after the word that counts.
func (s *Session) Answered() bool {
	source, w, ok := s.decides()
	return ok && *s.Run.Answered.of(source) >= w.Seq
}

func (s *Session) acknowledged(source Source, w Word) bool {
	return *s.Run.Acknowledged.of(source) >= w.Seq
}

// sources are those that are heard of this agent, the strongest first.
func (s *Session) sources() []Source {
	if s.Run == nil || s.Run.Sources == "" {
		return Sources
	}
	var heard []Source
	for name := range strings.FieldsSeq(s.Run.Sources) {
		heard = append(heard, Source(name))
	}
	return append(heard, FromScreen, FromOutput)
}

// decides returns the word that counts: that of the strongest source that says something, and was not answered since. What the screen shows is more than
// anything else, but counts only for as long as nobody who knows has spoken.
func (s *Session) decides() (Source, Word, bool) {
	if !s.Run.AgentAlive() {
		return "", Word{}, false
	}
	sources := s.sources()
	if w, ok := s.heard.of(FromScreen); ok && w.asks() && !s.settled(FromScreen, w) && !s.spoke(sources) {
		return FromScreen, w, true
	}
	for _, source := range sources {
		if w, ok := s.word(source); ok && source != FromScreen && w.says() && (source == FromOutput || !s.settled(source, w)) {
			return source, w, true
		}
	}
	return "", Word{}, false
}

// says tells whether the word is about what the agent does, or wants.
func (w Word) says() bool { return w.Activity != "" || w.Reason != "" }

// spoke tells whether the agent has said itself what it does. A title that says that it has nothing to do is no such word, nor a hook that says so: there are
// programs that have it above the dialog with which they begin, or run it before that.
func (s *Session) spoke(sources []Source) bool {
	return slices.ContainsFunc(sources, func(source Source) bool {
		w, ok := s.word(source)
		switch source {
		case FromOSC7501, FromNotify:
			return ok && w.says()
		case FromTitle, FromReport:
			return ok && w.says() && (w.Activity != Idle || w.Reason != "")
		}
		return false
	})
}

// Active returns what the session's agent is doing, who told it, and since when. A bell does not tell what the agent does, but one that rings and
// then falls silent waits for somebody.
func (s *Session) Active() (activity string, source Source, since time.Time) {
	activity, source, w := s.active()
	return activity, source, w.At
}

// ActiveSince returns what the session's agent is doing, and since when by CLOCK_MONOTONIC, 0 if that is not known.
func (s *Session) ActiveSince() (activity string, since time.Duration) {
	activity, _, w := s.active()
	return activity, w.Monotonic
}

// active is Active with the word that tells since when it is so.
func (s *Session) active() (activity string, source Source, since Word) {
	source, w, ok := s.decides()
	switch {
	case !ok:
		return Unknown, "", Word{}
	case w.Activity != "":
		return w.Activity, source, w
	}
	out, ok := s.heard.of(FromOutput)
	switch {
	case !ok:
		return Unknown, source, Word{}
	case source == FromBell && out.Activity == Idle:
		return Waiting, source, out
	}
	return out.Activity, FromOutput, out
}

// Attention is why a session wants a person. The zero value is that it does not.
type Attention struct {
	Reason       string // a reason, or one of the states failed, completed, stale, orphaned
	Message      string // what the agent has asked
	Source       Source // "" for a state
	Since        time.Time
	Acknowledged bool // a person has seen it: nobody is notified of it any more
}

// attentive are the states that want a person until somebody has seen them.
var attentive = []State{Failed, Completed, Stale, Orphaned}

// Attention returns why the session wants a person: its state comes first, then what its agent
// says. A state is shown until a person has acknowledged it. What the agent asks is shown until it
// is answered or the agent continues; a person who acknowledges it only silences it. Of a bell
// nothing remains to be answered: it ends when it is acknowledged (see settled).
func (s *Session) Attention() Attention {
	if v := s.View(); slices.Contains(attentive, v.State) && s.Seen != v.State {
		since := v.Since
		if since.IsZero() && s.State == v.State {
			since = s.StateChanged
		}
		return Attention{Reason: string(v.State), Since: since}
	}
	source, w, ok := s.decides()
	if !ok || w.Reason == "" {
		return Attention{}
	}
	a := Attention{Reason: w.Reason, Message: w.Message, Source: source, Since: w.At, Acknowledged: s.acknowledged(source, w)}
	if source == FromTitle && (w.Activity == Waiting || w.Reason == TurnEnded) {
		s.askMore(&a, w)
	}
	return a
}

// together is how long after an agent says by one source that it waits it may take to say so by another one, or before that.
const together = 2 * time.Second

// askMore fills in what the agent waits for, or that its turn has ended by an error, which its title does not tell, from what another source says of the same.
func (s *Session) askMore(a *Attention, title Word) {
	for _, source := range s.sources() {
		w, ok := s.word(source)
		tells := w.Activity == Waiting && w.Reason != ""
		if title.Activity != Waiting {
			tells = w.Reason == ErrorShown
		}
		if ok && source != FromTitle && tells && !s.settled(source, w) && w.Monotonic >= title.Monotonic-together {
			a.Reason, a.Message, a.Source = w.Reason, w.Message, source
			a.Acknowledged = a.Acknowledged && s.acknowledged(source, w)
			return
		}
	}
}

// Acknowledgement is that a person takes note of everything that the session wants attention for now.
func (s *Session) Acknowledgement() Acknowledged {
	var a Acknowledged
	if s.Run != nil {
		a.Run = s.Run.ID
	}
	if v := s.View(); slices.Contains(attentive, v.State) {
		a.State = v.State
	}
	for _, source := range Sources {
		if w, ok := s.word(source); ok && w.Reason != "" {
			*a.Words.of(source) = w.Seq
		}
	}
	return a
}
