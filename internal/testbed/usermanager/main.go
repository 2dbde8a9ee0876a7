// Usermanager runs a command in a private `systemd --user` with its own bus, home and XDG
// directories, and exits with its status:
//
//	go run ./internal/testbed/usermanager -- COMMAND [ARGUMENT…]
//
// The command has the caller's terminal, working directory and environment, except for variables
// that would connect it with the outside. All processes and files that it leaves behind are removed
// afterwards. If root starts it, the command runs as an unprivileged user.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/corrald/corral/internal/testbed"
)

func main() {
	testbed.RunIfReexecuted()
	flag.Usage = func() { fmt.Fprintln(os.Stderr, "usage: usermanager -- COMMAND [ARGUMENT…]") }
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	os.Exit(testbed.Run(flag.Args()))
}
