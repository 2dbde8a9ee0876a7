package bus

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/godbus/dbus/v5"
)

// fixedHeader is the size of what every message begins with: byte order, type, flags, version,
// length of the body, serial, length of the header fields.
const fixedHeader = 16

func orderOf(message []byte) binary.ByteOrder {
	if message[0] == 'B' {
		return binary.BigEndian
	}
	return binary.LittleEndian
}

// header is what the guard wants to know of a message.
type header struct {
	sender, signature string
	descriptors       uint32
	whole             bool // all of it was read
}

// parseHeader reads the header fields. The bus has seen to it that they are valid; of those that it
// does not know only what comes before them is read.
func parseHeader(message []byte) (h header) {
	order := orderOf(message)
	end := min(uint64(fixedHeader)+uint64(order.Uint32(message[12:])), uint64(len(message)))
	fields := message[:end]
	for at := fixedHeader; at+4 <= len(fields); at = (at + 7) / 8 * 8 {
		field, kind := dbus.HeaderField(fields[at]), fields[at+2] // code, length of the signature (1), signature, NUL
		if at += 4; fields[at-3] != 1 {
			return h
		}
		var length int
		switch {
		case kind == 'g' && at < len(fields):
			length, at = int(fields[at]), at+1
		case strings.IndexByte("sou", kind) >= 0:
			if at = (at + 3) / 4 * 4; at+4 > len(fields) {
				return h
			}
			length, at = int(order.Uint32(fields[at:])), at+4
		default:
			return h
		}
		if kind == 'u' {
			if field == dbus.FieldUnixFDs {
				h.descriptors = uint32(length)
			}
			continue
		}
		if length < 0 || length >= len(fields)-at {
			return h
		}
		switch text := string(fields[at : at+length]); field {
		case dbus.FieldSender:
			h.sender = text
		case dbus.FieldSignature:
			h.signature = text
		}
		at += length + 1
	}
	h.whole = true
	return h
}

// unreadable tells what is wrong with a message that godbus cannot read, or that has descriptors
// and is not an answer, "" if nothing is. Only containers are a trouble to it.
func unreadable(message []byte, isAnswer bool) (says string) {
	h := parseHeader(message)
	if !h.whole {
		return "a header field cannot be read"
	}
	if h.descriptors > 0 && !isAnswer {
		return "no method takes file descriptors"
	}
	if !strings.ContainsAny(h.signature, "av({") {
		return ""
	}
	defer func() {
		if p := recover(); p != nil {
			says = fmt.Sprintf("the arguments of type %q cannot be read", h.signature)
		}
	}()
	if _, err := dbus.DecodeMessage(bytes.NewReader(message)); err != nil {
		return fmt.Sprintf("the arguments of type %q cannot be read: %v", h.signature, err)
	}
	return ""
}
