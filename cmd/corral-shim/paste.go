package main

import "bytes"

// removePasteEnd removes from b, in place, everything that a program could interpret as the end of
// a paste, including sequences that only form when another one is removed.
func removePasteEnd(b []byte) []byte {
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

// beforePasteEnd returns the length of b without the end-of-paste sequence that b ends with, or all
// of b if it ends with none. b ends with a tilde. Programs that parse the parameter as a number
// also accept CSI 0201 ~ and CSI 201;1 ~, and U+009B as CSI.
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
