// Manual completes the sources of the manual pages: `manual -o DIRECTORY PAGE.md…` writes each page
// to the directory, with the version, the date and the documentation from the interface
// definitions. `make man` then converts them with go-md2man. With -generate, it writes the files
// that are generated from the interface definitions: the Go types of package dbusapi, and the
// descriptions of the bus interface and of the JSON output in docs/reference. With -documents, it
// writes the documents that are installed, and replaces their links to files that are not. It runs
// in the root directory of the repository.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

//go:generate go run . -generate ../..

func main() { os.Exit(run()) }

func run() int {
	out := flag.String("o", "build/man", "directory to write to")
	version := flag.String("version", "", "version of the pages")
	date := flag.String("date", "", "date of the pages, YYYY-MM-DD")
	repository := flag.String("generate", "",
		"write the generated files below this directory, and nothing else")
	documents := flag.String("documents", "",
		"write the documents named as arguments below this directory, and nothing else")
	flag.Parse()
	if *documents != "" {
		return report(writeDocuments(*documents, flag.Args()))
	}
	if *repository != "" {
		return report(generate(*repository))
	}
	contract, err := readContract(".")
	if err != nil {
		return report(err)
	}
	interfaces, err := render("page.md.tmpl", contract)
	if err != nil {
		return report(err)
	}
	return report(write(*out, flag.Args(), strings.NewReplacer("@version@", *version, "@date@", *date,
		"@interfaces@", interfaces, "@errors@", contract.Errors)))
}

// report prints an error and returns the exit code.
func report(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "manual:", err)
	return 1
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
