package journal

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// messageIDs returns the names of this package's constants that are message IDs, by ID.
func messageIDs(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "journal.go", nil, 0)
	require.NoError(t, err)
	names := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == 1 {
			if value, ok := spec.Values[0].(*ast.BasicLit); ok {
				if id, _ := strconv.Unquote(value.Value); regexp.MustCompile("^[0-9a-f]{32}$").MatchString(id) {
					names[id] = spec.Names[0].Name
				}
			}
		}
		return true
	})
	return names
}

// TestCatalog_ExplainsEveryMessageID: systemd accepts the catalog, which is the source of
// `journalctl -x`, and it contains exactly the message IDs of this package.
func TestCatalog_ExplainsEveryMessageID(t *testing.T) {
	names := messageIDs(t)
	require.Contains(t, names, SessionStateChanged)
	root := t.TempDir()
	catalog, err := os.ReadFile("../../packaging/corral.catalog")
	require.NoError(t, err)
	path := filepath.Join(root, "usr/lib/systemd/catalog/corral.catalog")
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, catalog, 0o644))
	output, err := exec.Command("journalctl", "--root="+root, "--update-catalog").CombinedOutput()
	require.NoError(t, err, "%s", output)
	assert.Empty(t, string(output))
	listed, err := exec.Command("journalctl", "--root="+root, "--no-pager", "--list-catalog").CombinedOutput()
	require.NoError(t, err, "%s", listed)
	explained := map[string]bool{}
	for line := range strings.Lines(string(listed)) {
		id, text, ok := strings.Cut(strings.TrimSpace(line), " Corral: ")
		require.True(t, ok, "%s", line)
		assert.Contains(t, names, id, "no record has the message ID of %q", text)
		assert.NotContains(t, explained, id)
		explained[id] = true
	}
	for id, name := range names {
		assert.True(t, explained[id], "packaging/corral.catalog does not have %s, %s", name, id)
	}
}

var (
	catalogField = regexp.MustCompile("@CORRAL_([A-Z_]+)@")
	knownFields  = []string{"SESSION", "AGENT", "STATE", "PATH", "ERROR", "HOOK"}
)

// TestCatalog_UsesKnownFields: the catalog refers only to fields that records have.
func TestCatalog_UsesKnownFields(t *testing.T) {
	catalog, err := os.ReadFile("../../packaging/corral.catalog")
	require.NoError(t, err)
	for _, m := range catalogField.FindAllSubmatch(catalog, -1) {
		assert.Contains(t, knownFields, string(m[1]))
	}
}

// TestManual_DocumentsTheJournalFields: corrald(8) documents the fields by which records can be
// selected with journalctl.
func TestManual_DocumentsTheJournalFields(t *testing.T) {
	manual, err := os.ReadFile("../../docs/man/corrald.8.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(manual), "# JOURNAL\n")
	section, _, _ = strings.Cut(section, "\n# ")
	for _, key := range []string{
		"session", "agent", "state", "result", "run", "exit_code", "signal", "last_activity", unitKey,
	} {
		assert.Regexp(t, `\b`+strings.ReplaceAll(entryFieldName(key), "_", `\\_`)+`\b`, section)
	}
}
