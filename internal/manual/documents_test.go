package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLinksOf_PointsToTheWebForUninstalledFiles(t *testing.T) {
	documents := []string{"README.md", "docs/FAQ.md", "docs/agents/README.md"}
	for text, want := range map[string]string{
		"[a](docs/FAQ.md)":                    "[a](docs/FAQ.md)",
		"![p](docs/pictures/top.svg)":         "![p](" + repositoryURL + "docs/pictures/top.svg)",
		"[s](docs/man/corral@.5.md#examples)": "[s](" + repositoryURL + "docs/man/corral@.5.md#examples)",
		"[w](https://example.org/x)":          "[w](https://example.org/x)",
		"[h](#here)":                          "[h](#here)",
	} {
		assert.Equal(t, want, linksOf(text, "README.md", documents))
	}
	assert.Equal(t, "[r](../README.md)", linksOf("[r](../README.md)", "docs/FAQ.md", documents))
	assert.Equal(t, "[h]("+repositoryURL+"HACKING.md)", linksOf("[h](../HACKING.md)", "docs/FAQ.md", documents))
}

func TestWriteDocuments(t *testing.T) {
	t.Chdir("../..")
	dir := t.TempDir()
	require.NoError(t, writeDocuments(dir, []string{"README.md", "docs/FAQ.md"}))
	text, err := os.ReadFile(filepath.Join(dir, "README.md"))
	require.NoError(t, err)
	assert.Contains(t, string(text), "(docs/FAQ.md)")
	assert.Contains(t, string(text), "("+repositoryURL+"HACKING.md)")
}
