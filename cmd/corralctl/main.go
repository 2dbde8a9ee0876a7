// Corralctl controls Corral from a terminal, in the manner of systemctl. It is a client of
// corrald's D-Bus interface. Each verb has a file, which is named after it. Output follows these
// rules: results go to stdout, everything else to stderr; an error is one line that names its
// object, with one line of hint if a command would help; control characters are escaped in text
// from agents and files; colours are only used on a terminal.
package main

import (
	"context"
	"os"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
