// Corralctl controls Corral from a terminal: a client of the daemon's D-Bus interface that feels
// like systemctl. One file for each verb, named after it. The rules of its output: results go to
// stdout, everything else to stderr; an error is one line that names its object, with one hint line
// where a command would help; what an agent or a file said is printed with its control characters
// escaped; colour only on a terminal.
package main

import (
	"context"
	"os"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
