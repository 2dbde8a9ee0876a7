// Package shimwire is what corrald and corral-shim say to each other: the Spec, a file that tells a
// shim what to run, and Messages, datagrams of a SOCK_SEQPACKET socket on which the shim listens.
//
// Both are lists of fields: one byte that names the field, its length as an unsigned varint, its
// bytes. A field that a reader does not know is passed over, because a package upgrade lets a
// daemon talk to shims older and younger than itself for as long as they live.
package shimwire

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/corrald/corral/internal/plaintext"
)

// MaxSpec bounds a Spec, in bytes: Linux lets an execve have 2 MiB of arguments and environment
// unless the stack limit was raised.
const MaxSpec = 4 << 20

// MaxMessage bounds one datagram, in bytes. Longer input is sent in several.
const MaxMessage = 32 << 10

// Kind tells what a Message is about.
type Kind byte

const (
	// Hello is the first message on each connection, from the shim: which run it is for, its own and
	// its agent's process, how active it is. It is sent once the agent was executed; one that could
	// not be executed has an exit_status and no Hello.
	Hello Kind = 'h'
	// Idle and Working tell, from the shim, that the agent's output ceased for the Spec's IdleAfter,
	// or began again; Since is when.
	Idle    Kind = 'i'
	Working Kind = 'w'
	// StatusReport tells, from the shim, what a Source has to say of the agent now: Activity, Reason,
	// Text, Since. It stands until the next one of that Source, whose Seq is greater. After a Hello it
	// is said once more, so that a daemon knows what was said before it came.
	StatusReport Kind = 's'
	// Ready tells, from the shim, that the agent has said so by READY=1 (sd_notify(3)); Since is when.
	// After a Hello it is said once more.
	Ready Kind = 'r'
	// Prompted tells, from the shim, that the Spec's Prompt was typed, or begins to be. After a Hello
	// it is said once more.
	Prompted Kind = 'p'
	// PaneClosed tells, from the shim, that a person closed the pane (or its tmux session) while the
	// tmux server lives on. The shim has sent SIGHUP to the agent's processes, as any terminal does
	// that is closed.
	PaneClosed Kind = 'c'
	// PaneLost tells, from the shim, that the pane is gone with its tmux server. The agent lives on.
	PaneLost Kind = 'l'
	// Input carries, to the shim, text for the agent: Data, Seq, and the flags below. A text longer
	// than MaxData comes in several messages with one Seq, all but the last with FlagMore. Texts are
	// written in the order they come in, never mixed with each other or with typed keys.
	Input Kind = 't'
	// Keys carries, to the shim, keys for the agent: their names in tmux, in Data, each but the last
	// followed by NUL, Seq, and FlagIfStillAsking. They are pressed one after the other, in order with
	// texts. A shim whose Hello does not have TakesKeys ignores it.
	Keys Kind = 'k'
	// InputDone answers Input and Keys, from the shim: the agent's terminal has taken all of what has
	// number Seq, or Error says why not. FlagIfStillAsking is set if the condition of that name is the
	// reason.
	InputDone Kind = 'd'
	// Join comes from a second shim that runs in the pane of a new tmux session: it hands over that
	// pane's terminal as a descriptor (SCM_RIGHTS), and in Data the pane's $TMUX. From then on the
	// agent's terminal is shown there.
	Join Kind = 'j'
	// Ended tells a joined pane's shim that the agent has ended. Seq is the code with which it exits
	// too, so that the pane shows it. Nobody else is told so: for everybody else the record is the
	// file exit_status.
	Ended Kind = 'e'
	// Resized tells, from a joined pane's shim, that its terminal's size has changed.
	Resized Kind = 'z'
)

// Flags of Input and Keys.
const (
	FlagEnter = 1 << iota // Input: press Enter once the text has been taken
	FlagMore              // Input: the text goes on in the next message

	// FlagIfStillAsking, of Keys: each of them is written only if the agent still asks what Source has
	// said at SinceMonotonic. It does not if a Source of the shim's has said anything that is newer
	// than Asked, or if somebody has typed something in the meantime.
	FlagIfStillAsking
)

// The sources of Said.
const (
	OSC7501 = "osc7501" // the agent, to its terminal: Program Status Protocol
	Notify  = "notify"  // the agent, by sd_notify(3)
	Title   = "title"   // its terminal's, and the marks that a shell makes there
	Bell    = "bell"    // its terminal's, and the notifications that the agent has it show
	Screen  = "screen"  // what it shows of itself, where it says nothing: a Spec's SetupPattern
)

// Activities and Reasons are what a Said can have; what is not among them a daemon passes over.
var (
	Activities = []string{"working", "idle", "waiting"}
	Reasons    = []string{"permission", "question", "auth", "setup", "turn-ended", "error", "bell"}
)

// MaxText bounds Text in a Said, and everything else that an agent says to a person, in bytes.
const MaxText = 2 << 10

// SanitizeText is a text of an agent's as it can be kept and sent: valid UTF-8 without NUL, as a
// D-Bus string has to be, of MaxText bytes at most.
func SanitizeText(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if len(text) <= MaxText {
		return text
	}
	const more = "…"
	end := MaxText - len(more)
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + more
}

// SanitizeLine is Bounded for a message of an agent's, from wherever it came: one line, without
// control characters, and without those that are not visible or would have a screen show it in
// another order than it is.
func SanitizeLine(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	text = strings.Map(func(c rune) rune {
		switch {
		case unicode.In(c, unicode.Cc, unicode.Zl, unicode.Zp):
			return ' '
		case plaintext.IsUnsafe(c):
			return -1
		}
		return c
	}, text)
	return SanitizeText(strings.Join(strings.Fields(text), " "))
}

// MaxData is the most text that one Input message holds, in bytes.
const MaxData = MaxMessage - 128

// Message is one datagram.
type Message struct {
	Kind  Kind
	RunID string // Hello

	ShimPID    int       // Hello
	AgentPID   int       // Hello
	AgentStart uint64    // Hello: clock ticks since boot, field 22 of /proc/PID/stat
	Started    time.Time // Hello: when the agent was executed
	Idle       bool      // Hello
	Pane       bool      // Hello: it has a pane
	TakesKeys  bool      // Hello: the shim knows Keys

	Since          time.Time     // Idle, Working, Hello, Said, Ready: since when
	SinceMonotonic time.Duration // the same moment by CLOCK_MONOTONIC; an older shim does not tell it. Keys: since when the agent asks

	Source   string // StatusReport: which of the ways of saying something. Keys: by which one the agent asks
	Activity string // StatusReport: working, idle or waiting, "" if that is not said
	Reason   string // StatusReport: why it wants a person, "" if it does not
	Text     string // StatusReport: the agent's own words, MaxText bytes of UTF-8 at most

	KnownSeq uint32 // Keys: the greatest Seq of a Said that the sender knows, of those that tell whether the agent asks
	Seq      uint32 // Input, Keys, InputDone; Ended: the exit code; Hello, Idle, Working, Said: grows with each of them
	Flags    uint32 // Input, Keys, InputDone
	Data     []byte // Input, Keys, Join; in a parsed message it points into the datagram
	Error    string // InputDone
}

const (
	msgRunID      = 'r'
	msgShimPID    = 's'
	msgAgentPID   = 'a'
	msgAgentStart = 't'
	msgStarted    = 'b'
	msgIdle       = 'i'
	msgPane       = 'p'
	msgSince      = 'w'
	msgSeq        = 'q'
	msgFlags      = 'f'
	msgData       = 'd'
	msgError      = 'e'
	msgSource     = 'o'
	msgActivity   = 'y'
	msgReason     = 'n'
	msgText       = 'x'
	msgMonotonic  = 'm'
	msgTakesKeys  = 'k'
	msgAsked      = 'A'
)

// Append appends the encoded message to b. Fields that are zero are left out.
func (m *Message) Append(b []byte) []byte {
	b = append(b, byte(m.Kind))
	text := func(tag byte, v string) {
		if v != "" {
			b = appendString(b, tag, v)
		}
	}
	num := func(tag byte, v int64) {
		if v != 0 {
			b = appendNumber(b, tag, v)
		}
	}
	text(msgRunID, m.RunID)
	num(msgShimPID, int64(m.ShimPID))
	num(msgAgentPID, int64(m.AgentPID))
	num(msgAgentStart, int64(m.AgentStart))
	num(msgStarted, micro(m.Started))
	num(msgIdle, bit(m.Idle))
	num(msgPane, bit(m.Pane))
	num(msgTakesKeys, bit(m.TakesKeys))
	num(msgSince, micro(m.Since))
	num(msgMonotonic, m.SinceMonotonic.Microseconds())
	num(msgAsked, int64(m.KnownSeq))
	num(msgSeq, int64(m.Seq))
	num(msgFlags, int64(m.Flags))
	if len(m.Data) > 0 {
		b = append(binary.AppendUvarint(append(b, msgData), uint64(len(m.Data))), m.Data...)
	}
	text(msgError, m.Error)
	text(msgSource, m.Source)
	text(msgActivity, m.Activity)
	text(msgReason, m.Reason)
	text(msgText, m.Text)
	return b
}

// ParseMessage decodes one datagram.
func ParseMessage(b []byte) (Message, error) {
	if len(b) == 0 {
		return Message{}, errors.New("empty message")
	}
	m := Message{Kind: Kind(b[0])}
	err := fields(b[1:], func(tag byte, v []byte) error {
		if tag == msgData {
			m.Data = v
			return nil
		}
		if text := m.textOf(tag); text != nil {
			*text = string(v)
			return nil
		}
		n, err := number(v)
		if err != nil {
			return err
		}
		switch tag {
		case msgShimPID:
			m.ShimPID = int(n)
		case msgAgentPID:
			m.AgentPID = int(n)
		case msgAgentStart:
			m.AgentStart = uint64(n)
		case msgStarted:
			m.Started = time.UnixMicro(n)
		case msgIdle:
			m.Idle = n != 0
		case msgPane:
			m.Pane = n != 0
		case msgTakesKeys:
			m.TakesKeys = n != 0
		case msgAsked:
			m.KnownSeq = uint32(n)
		case msgSince:
			m.Since = time.UnixMicro(n)
		case msgMonotonic:
			if n > math.MaxInt64/int64(time.Microsecond) {
				return errors.New("a number is out of range")
			}
			m.SinceMonotonic = time.Duration(n) * time.Microsecond
		case msgSeq:
			m.Seq = uint32(n)
		case msgFlags:
			m.Flags = uint32(n)
		}
		return nil
	})
	if err != nil {
		return Message{}, err
	}
	return m, nil
}

// textOf returns the field that is a text with this tag, nil if it is none.
func (m *Message) textOf(tag byte) *string {
	switch tag {
	case msgRunID:
		return &m.RunID
	case msgError:
		return &m.Error
	case msgSource:
		return &m.Source
	case msgActivity:
		return &m.Activity
	case msgReason:
		return &m.Reason
	case msgText:
		return &m.Text
	}
	return nil
}
