package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// untested are the errors that no story can cause, and why.
var untested = map[string]string{
	"cannot report: ": "report always exits with 0 and prints nothing in a hook",
	"cannot wait for %q: it was removed": "a session ends before it is removed, " +
		"and a story cannot remove one that never ran while it is being waited for",
}

// TestErrorMessages_OccurInStories: every error of corralctl's own is in a story, with its hint and
// exit code.
func TestErrorMessages_OccurInStories(t *testing.T) {
	var storyText strings.Builder
	stories, err := filepath.Glob("testdata/*.story")
	require.NoError(t, err)
	for _, path := range stories {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		storyText.Write(text)
	}
	messages := ownErrors(t)
	require.NotEmpty(t, messages)
	for message, where := range messages {
		if untested[message] == "" {
			assert.Regexp(t, anyOf(message), storyText.String(), where)
		}
	}
	for message := range untested {
		assert.Contains(t, messages, message)
	}
}

// anyOf returns an expression that matches what a format can print.
func anyOf(format string) *regexp.Regexp {
	pattern := regexp.MustCompile(`%[a-z]`).ReplaceAllString(regexp.QuoteMeta(format), ".+")
	return regexp.MustCompile(`(?m)^corralctl: .*` + pattern)
}

// ownErrors returns the formats of the errors in the source files, each with its position.
func ownErrors(t *testing.T) map[string]string {
	all := map[string]string{}
	files := token.NewFileSet()
	sources, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(files, source, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(node ast.Node) bool {
			if message := errorOf(node); message != nil {
				text, err := strconv.Unquote(message.Value)
				require.NoError(t, err)
				all[text] = files.Position(message.Pos()).String()
			}
			return true
		})
	}
	return all
}

// errorOf returns the message of an error that an expression makes: a call of usagef, or a failure
// with a message.
func errorOf(node ast.Node) *ast.BasicLit {
	switch n := node.(type) {
	case *ast.CallExpr:
		if name, ok := n.Fun.(*ast.Ident); ok && name.Name == "usagef" {
			return literal(n.Args[1])
		}
	case *ast.CompositeLit:
		if name, ok := n.Type.(*ast.Ident); !ok || name.Name != "failure" {
			return nil
		}
		for i, element := range n.Elts {
			if pair, ok := element.(*ast.KeyValueExpr); ok && pair.Key.(*ast.Ident).Name == "message" {
				return literal(pair.Value)
			} else if !ok && i == 1 {
				return literal(element)
			}
		}
	}
	return nil
}

// literal returns the first string literal in an expression: itself, a format, the beginning of a
// sum.
func literal(e ast.Expr) *ast.BasicLit {
	switch e := e.(type) {
	case *ast.BasicLit:
		return e
	case *ast.BinaryExpr:
		return literal(e.X)
	case *ast.CallExpr:
		if len(e.Args) > 0 {
			return literal(e.Args[0])
		}
	}
	return nil
}
