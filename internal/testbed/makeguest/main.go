// Makeguest builds the kernel and the disk for the test bed's guests, as root, and prints its
// progress, which `go test` would hide:
//
//	go run ./internal/testbed/makeguest [-n]
//
// With -n it builds nothing and exits with status 1 if anything is missing.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/corrald/corral/internal/testbed/guest"
)

func main() {
	only := flag.Bool("n", false, "make nothing: end with status 1 if something is missing")
	flag.Parse()
	if *only {
		if !guest.IsBuilt() {
			os.Exit(1)
		}
		return
	}
	if err := guest.Build(); err != nil {
		fmt.Fprintln(os.Stderr, "makeguest:", err)
		os.Exit(1)
	}
}
