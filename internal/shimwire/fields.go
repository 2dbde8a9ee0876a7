package shimwire

import (
	"encoding/binary"
	"errors"
	"time"
)

func appendString(b []byte, tag byte, v string) []byte {
	return append(binary.AppendUvarint(append(b, tag), uint64(len(v))), v...)
}

func appendNumber(b []byte, tag byte, v int64) []byte {
	var buf [binary.MaxVarintLen64]byte
	n := binary.PutUvarint(buf[:], uint64(v))
	return append(append(b, tag, byte(n)), buf[:n]...)
}

// parseFields calls f with the tag and the value of each field in b.
func parseFields(b []byte, f func(tag byte, v []byte) error) error {
	for len(b) > 0 {
		tag := b[0]
		size, n := binary.Uvarint(b[1:])
		if n <= 0 || size > uint64(len(b)-1-n) {
			return errors.New("a field is cut off")
		}
		b = b[1+n:]
		if err := f(tag, b[:size:size]); err != nil {
			return err
		}
		b = b[size:]
	}
	return nil
}

func parseNumber(v []byte) (int64, error) {
	u, n := binary.Uvarint(v)
	if n != len(v) || n <= 0 || u > 1<<63-1 {
		return 0, errors.New("a number is out of range")
	}
	return int64(u), nil
}

func parseFlag(v []byte) (bool, error) {
	n, err := parseNumber(v)
	return n != 0, err
}

func parseDuration(v []byte) (time.Duration, error) {
	n, err := parseNumber(v)
	return time.Duration(n), err
}

func unixMicro(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func boolNumber(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
