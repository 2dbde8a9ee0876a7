// Manual completes the sources of the manual pages: `manual -o DIRECTORY PAGE.md…` writes each page
// to the directory, with the version, the date and the documentation from the interface
// definitions. `make man` then converts them with go-md2man. With -reference, it writes the
// documentation of the bus interface to docs/reference. With -documents, it writes the documents
// that are installed, and replaces their links to files that are not.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/corrald/corral/dbusapi"
)

//go:generate go run . -reference ../../docs/reference/dbus.md

func main() { os.Exit(run()) }

func run() int {
	out := flag.String("o", "build/man", "directory to write to")
	version := flag.String("version", "", "version of the pages")
	date := flag.String("date", "", "date of the pages, YYYY-MM-DD")
	page := flag.String("reference", "", "write the reference of the bus interface to this file, and nothing else")
	documents := flag.String("documents", "",
		"write the documents named as arguments below this directory, and nothing else")
	flag.Parse()
	if *documents != "" {
		return report(writeDocuments(*documents, flag.Args()))
	}
	if *page != "" {
		return writeReference(*page)
	}
	interfaces, err := describe(dbusapi.ManagerXML, dbusapi.SessionXML)
	if err == nil {
		replacer := strings.NewReplacer("@version@", *version, "@date@", *date,
			"@interfaces@", interfaces, "@errors@", errorNames(dbusapi.ManagerXML))
		err = write(*out, flag.Args(), replacer)
	}
	return report(err)
}

// report prints an error and returns the exit code.
func report(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "manual:", err)
	return 1
}

// writeReference writes the documentation of the bus interface.
func writeReference(path string) int {
	text, err := reference(dbusapi.ManagerXML, dbusapi.SessionXML)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o644) //nolint:gosec // readable by all users
	}
	return report(err)
}

// write writes the pages to dir, with their placeholders replaced.
func write(dir string, pages []string, replacer *strings.Replacer) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		complete, target := []byte(replacer.Replace(string(text))), filepath.Join(dir, filepath.Base(page))
		if err := os.WriteFile(target, complete, 0o644); err != nil { //nolint:gosec // readable by all users
			return err
		}
	}
	return nil
}
