package main

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// repositoryURL is the base of links to files that are not installed.
const repositoryURL = "https://github.com/corrald/corral/blob/main/"

var link = regexp.MustCompile(`\]\(([^):#]+)(#[^)]*)?\)`)

// writeDocuments writes the documents below dir, under their paths in the repository. In these
// installed copies, links to files that are not installed point to the web.
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
		installed := []byte(linksOf(string(text), document, documents))
		if err := os.WriteFile(target, installed, 0o644); err != nil { //nolint:gosec // readable by all users
			return err
		}
	}
	return nil
}

// linksOf returns the text of a document with links that lead to the web unless their target is in
// documents.
func linksOf(text, document string, documents []string) string {
	return link.ReplaceAllStringFunc(text, func(found string) string {
		m := link.FindStringSubmatch(found)
		target := path.Join(path.Dir(document), m[1])
		if slices.Contains(documents, target) || strings.HasPrefix(target, "../") {
			return found
		}
		return "](" + repositoryURL + target + m[2] + ")"
	})
}
