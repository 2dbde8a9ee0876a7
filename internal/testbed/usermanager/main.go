// Usermanager runs a command in a private `systemd --user` with a bus, a home and XDG directories
// of its own, and exits with its status:
//
//	go run ./internal/testbed/usermanager [-v] -- COMMAND [ARGUMENT…]
//
// The command has the terminal, the working directory and the environment of the caller, except for
// what would lead it out. Everything that it leaves running or lying about there is gone
// afterwards. As root, the command runs as an unprivileged user.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/corrald/corral/internal/testbed"
)

func main() {
	testbed.RunIfReexecuted()
	verbose := flag.Bool("v", false, "tell where the user manager is and how long it took to start")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: usermanager [-v] -- COMMAND [ARGUMENT…]")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	os.Exit(testbed.Run(flag.Args(), *verbose))
}
