package main

import "bytes"

// withoutPasteEnd removes from b, in place, all that a program could take for the end of a paste,
// also what comes about by the removal of another.
func withoutPasteEnd(b []byte) []byte {
	n := 0
	for _, c := range b {
		b[n] = c
		n++
		if c == '~' {
			n = beforePasteEnd(b[:n])
		}
	}
	return b[:n]
}

// beforePasteEnd returns how much of b, which ends with a tilde, comes before the end of a paste
// that it ends with, all if it does not. Programs that read the number of a control sequence as a
// number take CSI 0201 ~ and CSI 201;1 ~ for it too, and U+009B for CSI.
func beforePasteEnd(b []byte) int {
	i := len(b) - 1
	for i > 0 && b[i-1] >= 0x20 && b[i-1] < 0x40 {
		i--
	}
	number := bytes.TrimLeft(b[i:len(b)-1], "0")
	if !bytes.HasPrefix(number, []byte("201")) || len(number) > 3 && number[3] >= '0' && number[3] <= '9' {
		return len(b)
	}
	for _, csi := range []string{"\x1b[", "\u009b"} {
		if bytes.HasSuffix(b[:i], []byte(csi)) {
			return i - len(csi)
		}
	}
	return len(b)
}
