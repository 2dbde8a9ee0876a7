// Package shimwire defines what corrald and corral-shim send to each other: the Spec, a file that
// describes to a shim what to run, and Messages, datagrams of a SOCK_SEQPACKET socket on which the
// shim listens.
//
// Both are lists of fields. A field is one byte that identifies it, its length as an unsigned
// varint, and its bytes. Readers ignore fields that they do not know: after a package upgrade a
// daemon has to work with shims older and newer than itself for as long as they run.
package shimwire

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/plaintext"
)

// MaxSpec is the size limit of a Spec, in bytes. Linux limits the arguments and the environment of
// an execve to 2 MiB unless the stack limit was raised.
const MaxSpec = 4 << 20

// MaxMessage is the size limit of one datagram, in bytes. Longer input is sent in several.
const MaxMessage = 32 << 10

// Kind is the type of a Message.
type Kind byte

const (
	// Hello is the shim's first message on each connection: it identifies the run, the shim's and the
	// agent's process, and the agent's activity. It is sent once the agent was executed. If the agent
	// could not be executed there is an exit_status and no Hello.
	Hello Kind = 'h'
	// Idle and Working report that the agent's output has stopped for the Spec's IdleAfter, or that it
	// has resumed; Since is when. Sent by the shim.
	Idle    Kind = 'i'
	Working Kind = 'w'
	// StatusReport is the agent's status according to one Source: Activity, Reason, Text, Until,
	// Since. Sent by the shim. It is valid until the next report of the same Source, whose Seq is
	// greater. The shim repeats the latest reports after each Hello, so that a new daemon gets them
	// too.
	StatusReport Kind = 's'
	// Ready reports that the agent has sent READY=1 (sd_notify(3)); Since is when. Sent by the shim,
	// and repeated after each Hello.
	Ready Kind = 'r'
	// Prompted reports that the shim is about to type the Spec's Prompt, or has typed it. Sent by the
	// shim, and repeated after each Hello.
	Prompted Kind = 'p'
	// Typed reports that somebody has typed in the pane, or has sent input; Since is when. Sent by the
	// shim for the first input after each Idle, Working and StatusReport, and repeated after each
	// Hello.
	Typed Kind = 'y'
	// PaneClosed reports that the user closed the pane (or its tmux session) while the tmux server
	// keeps running. Sent by the shim, which has sent SIGHUP to the agent's processes, as the kernel
	// does when a terminal is closed.
	PaneClosed Kind = 'c'
	// PaneLost reports that the tmux server has exited, and the pane with it. The agent keeps running.
	// Sent by the shim.
	PaneLost Kind = 'l'
	// Input carries text for the agent: Data, Seq, and the flags below. Sent to the shim. A text
	// longer than MaxData is sent in several messages with the same Seq, all but the last with
	// FlagMore. The shim writes texts in the order in which it receives them, never mixed with each
	// other or with typed keys.
	Input Kind = 't'
	// Keys carries keys for the agent: Data is their tmux names, separated by NUL; Seq; and
	// FlagIfStillAsking. Sent to the shim, which presses them one after the other, in order with
	// texts. A shim whose Hello lacks TakesKeys ignores it.
	Keys Kind = 'k'
	// InputDone answers Input and Keys: the agent's terminal has accepted everything with number Seq,
	// or Error is the reason why not. FlagIfStillAsking is set if the failed condition of that flag is
	// the reason. Sent by the shim.
	InputDone Kind = 'd'
	// Join passes the terminal of a new tmux pane to the shim, which then shows the agent there: a
	// descriptor (SCM_RIGHTS), and the pane's $TMUX in Data. Sent to the shim by a second shim process
	// that runs in that pane.
	Join Kind = 'j'
	// ScopeEnds announces that the daemon ends the run's scope once the agent has exited: the shim
	// prints no line into the pane. It is valid as long as the connection. Sent to the shim; older
	// ones ignore it.
	ScopeEnds Kind = 'x'
	// Ended reports to the shim in a joined pane that the agent has ended. Seq is the exit code that
	// it uses too, so that the pane shows it. It is sent to no other client: they read exit_status.
	Ended Kind = 'e'
	// Resized reports that the size of a joined pane has changed. Sent to the shim by the shim in that
	// pane.
	Resized Kind = 'z'
)

// Flags of Input and Keys.
const (
	FlagEnter = 1 << iota // Input: press Enter once the terminal has accepted the text
	FlagMore              // Input: the text continues in the next message

	// FlagIfStillAsking, of Keys: press each key only if the agent is still asking the question that
	// Source reported at SinceMonotonic. The shim assumes that it is not if one of the shim's sources
	// has sent a report newer than KnownSeq, or if somebody has typed in the meantime.
	FlagIfStillAsking
)

// Reasons are the valid reasons of a StatusReport, as word.Activities are the activities. A daemon
// ignores other values.
var Reasons = slices.Concat(word.Reasons, []string{word.Bell})

// MaxText is the size limit of Text in a StatusReport, and of every other text for the user that
// comes from an agent, in bytes.
const MaxText = 2 << 10

// SanitizeText converts a text from an agent into one that can be stored and sent over D-Bus: valid
// UTF-8 without NUL, of at most MaxText bytes.
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

// SanitizeLine converts a text from an agent into a single line for display. Beyond what
// SanitizeText does it removes control characters, invisible characters, and those that make a
// terminal reorder text.
func SanitizeLine(text string) string { return SanitizeText(plaintext.Line(text)) }

// MaxData is the maximum size of the text in one Input message, in bytes.
const MaxData = MaxMessage - 128

// Message is one datagram.
type Message struct {
	Kind  Kind
	RunID string // Hello

	Sandbox string // Hello: the name of the agent's sandbox profile, "" for none

	ShimPID    int       // Hello
	AgentPID   int       // Hello
	AgentStart uint64    // Hello: clock ticks since boot, field 22 of /proc/PID/stat
	Started    time.Time // Hello: when the agent was executed
	Idle       bool      // Hello
	Pane       bool      // Hello: the agent is shown in a pane
	TakesKeys  bool      // Hello: the shim supports Keys
	SendsTyped bool      // Hello: the shim sends Typed

	Since time.Time // Idle, Working, Hello, StatusReport, Ready, Typed: when this status began

	// The same moment by CLOCK_MONOTONIC; older shims do not send it. Keys: when the agent began to
	// ask.
	SinceMonotonic time.Duration

	Source   string    // StatusReport: its source, of package word. Keys: the source of the agent's question
	Activity string    // StatusReport: working, idle or waiting; "" if unknown
	Reason   string    // StatusReport: why it needs the user's attention, or ""
	Text     string    // StatusReport: the agent's text, at most MaxText bytes of UTF-8
	Until    time.Time // StatusReport: when the usage limit resets that is its Reason; zero if unknown

	// Keys: the greatest Seq among the StatusReports that the sender has received from the sources
	// that report whether the agent is asking.
	KnownSeq uint32

	// Input, Keys, InputDone: number of the request. Ended: the exit code. Hello, Idle, Working,
	// StatusReport: a number that increases with each of them.
	Seq   uint32
	Flags uint32 // Input, Keys, InputDone
	Data  []byte // Input, Keys, Join; a parsed message refers to the datagram's memory
	Error string // InputDone
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
	msgKnownSeq   = 'A'
	msgUntil      = 'u'
	msgSendsTyped = 'T'
	msgSandbox    = 'c'
)

// Append appends the encoded message to b and returns the result. Zero fields are omitted.
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
	text(msgSandbox, m.Sandbox)
	num(msgShimPID, int64(m.ShimPID))
	num(msgAgentPID, int64(m.AgentPID))
	num(msgAgentStart, int64(m.AgentStart))
	num(msgStarted, unixMicro(m.Started))
	num(msgIdle, boolNumber(m.Idle))
	num(msgPane, boolNumber(m.Pane))
	num(msgTakesKeys, boolNumber(m.TakesKeys))
	num(msgSendsTyped, boolNumber(m.SendsTyped))
	num(msgUntil, unixMicro(m.Until))
	num(msgSince, unixMicro(m.Since))
	num(msgMonotonic, m.SinceMonotonic.Microseconds())
	num(msgKnownSeq, int64(m.KnownSeq))
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
	err := parseFields(b[1:], func(tag byte, v []byte) error {
		if tag == msgData {
			m.Data = v
			return nil
		}
		if text := m.stringField(tag); text != nil {
			*text = string(v)
			return nil
		}
		n, err := parseNumber(v)
		if err != nil {
			return err
		}
		return m.setNumber(tag, n)
	})
	if err != nil {
		return Message{}, err
	}
	return m, nil
}

// setNumber sets the field with this tag, which has a number.
func (m *Message) setNumber(tag byte, n int64) error {
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
	case msgSendsTyped:
		m.SendsTyped = n != 0
	case msgUntil:
		m.Until = time.UnixMicro(n)
	case msgKnownSeq:
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
}

// stringField returns the string field with this tag, or nil if there is none.
func (m *Message) stringField(tag byte) *string {
	switch tag {
	case msgRunID:
		return &m.RunID
	case msgSandbox:
		return &m.Sandbox
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
