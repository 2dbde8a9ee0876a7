package bus

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/godbus/dbus/v5"
)

// fixedHeader is the size of the fixed part of each message's header: byte order, type, flags,
// version, length of the body, serial number, length of the header fields.
const fixedHeader = 16

func byteOrder(message []byte) binary.ByteOrder {
	if message[0] == 'B' {
		return binary.BigEndian
	}
	return binary.LittleEndian
}

// header contains the header fields of a message that the guard uses.
type header struct {
	sender, signature string
	descriptors       uint32
	complete          bool // all fields were read
}

// parseHeader reads the header fields. The bus has verified that they are valid. At a field with an
// unknown structure, it stops.
func parseHeader(message []byte) (h header) {
	order := byteOrder(message)
	end := min(uint64(fixedHeader)+uint64(order.Uint32(message[12:])), uint64(len(message)))
	fields := message[:end]
	for at := fixedHeader; at+4 <= len(fields); at = (at + 7) / 8 * 8 {
		// A field begins with its code, the length of its signature (1), the signature and NUL.
		field, kind := dbus.HeaderField(fields[at]), fields[at+2]
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
	h.complete = true
	return h
}

// unreadable returns why godbus must not read a message: godbus cannot decode it, or it contains
// file descriptors and is not a reply. It returns "" for all other messages. godbus fails only at
// containers.
func unreadable(message []byte, isReply bool) (reason string) {
	h := parseHeader(message)
	if !h.complete {
		return "a header field cannot be read"
	}
	if h.descriptors > 0 && !isReply {
		return "no method takes file descriptors"
	}
	if !strings.ContainsAny(h.signature, "av({") {
		return ""
	}
	defer func() {
		if p := recover(); p != nil {
			reason = fmt.Sprintf("the arguments of type %q cannot be read", h.signature)
		}
	}()
	if _, err := dbus.DecodeMessage(bytes.NewReader(message)); err != nil {
		return fmt.Sprintf("the arguments of type %q cannot be read: %v", h.signature, err)
	}
	return ""
}
