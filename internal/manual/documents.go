package main

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// online is where a document leads that is not installed beside the others.
const online = "https://github.com/corrald/corral/blob/main/"

var link = regexp.MustCompile(`\]\(([^):#]+)(#[^)]*)?\)`)

// writeDocuments writes the documents below dir, by their paths in the tree, as they are installed:
// a link to a file that is not among them leads to the one on the web.
func writeDocuments(dir string, documents []string) error {
	for _, document := range documents {
		text, err := os.ReadFile(filepath.FromSlash(document))
		if err != nil {
			return err
		}
		target := filepath.Join(dir, filepath.FromSlash(document))
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(target, []byte(linksOf(string(text), document, documents)), 0o644); err != nil { //nolint:gosec // for everybody to read
			return err
		}
	}
	return nil
}

func linksOf(text, document string, documents []string) string {
	return link.ReplaceAllStringFunc(text, func(found string) string {
		m := link.FindStringSubmatch(found)
		target := path.Join(path.Dir(document), m[1])
		if slices.Contains(documents, target) || strings.HasPrefix(target, "../") {
			return found
		}
		return "](" + online + target + m[2] + ")"
	})
}
