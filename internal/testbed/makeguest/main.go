// Makeguest makes what the guests of the test bed run on, as root, and shows what it is doing,
// which `go test` would not:
//
//	go run ./internal/testbed/makeguest [-n]
//
// With -n it makes nothing, and its status says whether all is there.
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
