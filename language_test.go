package corral_test

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"

	contract "github.com/corrald/corral/dbusapi/word"
)

// maxCommentWidth and maxCodeWidth are in characters, with a tab as one.
const (
	maxCommentWidth = 100
	maxCodeWidth    = 120
)

// replacedWords are rejected in comments. They are everyday words that stood for several technical
// terms each; HACKING.md has the glossary.
var replacedWords = []struct {
	words   *regexp.Regexp
	instead string
}{
	{word(`tells?|told|telling|untold`), "report, publish, notify, log, print, return"},
	{word(`says?|said|saying`), "report, state, print, specify, document"},
	{word(`hears?|heard|hearing`), "receive, read, be notified of"},
	{word(`doors?`), "mailbox, queue, entry point"},
	{word(`settles?|settled|settling`), "resolve, finish, flush, decide"},
	{word(`debts?|owes?|owed`), "pending"},
	{word(`mends?|mended|mending`), "fix, repair"},
	{word(`troubles?|troubled`), "problem, error"},
	{word(`overtakes?|overtaken|overtook`), "supersede"},
	{word(`go on|goes on|went on|gone on|going on`), "continue"},
	{word(`at last`), "finally, after that"},
	{word(`as ever`), "as before, as usual"},
	{word(`takes? over|taken over|took over|taking over`), "adopt, replace"},
	{word(`hangs? up|hung up|hanging up`), "send SIGHUP, disconnect, close"},
	{word(`pass(es|ed)? over|passing over`), "skip, ignore"},
	{word(`calls? off|called off|calling off`), "cancel"},
	{word(`wish|wishes|wished`), "request"},
	{word(`finds? out|found out|finding out`), "detect, determine"},
	{word(`its word|a word of|the word of`), "status report, message"},
	{word(`belongs into`), "belongs in"},
	{word(`what is left`), "leftover processes, the rest"},
	{word(`[a-z]{2,} is no ([a-kn-w]|l[^o]|m[^o])[a-z-]*`), "is not a"}, // but "there is no", "is no longer", "is no more"
}

// replacedNames are the same for the words that identifiers are made of.
var replacedNames = strings.Fields(`tell tells told telling untold say says said saying hear hears heard
	hearing door doors settle settles settled debt debts owe owed owes mend mends mended trouble troubles
	overtake overtaken spot sight goal ground world stranger strangers speaker speakers greet recall wish
	wishes way ways together kin whom stir stirred`)

// notSubjects cannot begin the name of a test, which names its subject first.
var notSubjects = strings.Fields(`A An The What Who Whom Whose Where When Which Why How If It Its Every
	Each All Any Both No None Nobody Nothing Not Some Somebody Something One Two Three Only Of At In On
	After Before While To With Without From By For This That These Those There Their They`)

func word(pattern string) *regexp.Regexp { return regexp.MustCompile(`(?i)\b(` + pattern + `)\b`) }

func TestComments_UseTheWordsOfTheGlossary(t *testing.T) {
	for _, f := range tree(t) {
		for _, group := range f.ast.Comments {
			text := ownText(group)
			for _, r := range replacedWords {
				for _, found := range r.words.FindAllString(text, -1) {
					if !strings.HasPrefix(strings.ToLower(found), "there is no ") {
						assert.Fail(t, "a word that the glossary replaces",
							"%s: %q in a comment; write: %s", f.set.Position(group.Pos()), found, r.instead)
					}
				}
			}
		}
	}
}

// ownText returns the text of the comment on one line, without quotations: what is in quotes is not
// the comment's own wording.
func ownText(group *ast.CommentGroup) string {
	var text strings.Builder
	for _, line := range group.List {
		text.WriteString(strings.Trim(line.Text, "/* ") + "\n")
	}
	return strings.Join(strings.Fields(quotation.ReplaceAllString(text.String(), `""`)), " ")
}

var quotation = regexp.MustCompile("\"[^\"]*\"|`[^`]*`|“[^”]*”")

func TestIdentifiers_UseTheWordsOfTheGlossary(t *testing.T) {
	for _, f := range tree(t) {
		for _, name := range f.declared() {
			for _, w := range wordsOf(name.Name) {
				assert.NotContains(t, replacedNames, w, "%s: the identifier %s", f.set.Position(name.Pos()), name.Name)
			}
		}
	}
}

var testFunction = regexp.MustCompile(`^(Test|Fuzz|Benchmark)([A-Z0-9].*)`)

func TestTests_AreNamedAfterTheirSubject(t *testing.T) {
	for _, f := range tree(t) {
		for _, declaration := range f.ast.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok || !f.test || function.Recv != nil {
				continue
			}
			if name := testFunction.FindStringSubmatch(function.Name.Name); name != nil {
				first := wordsOf(name[2])[0]
				assert.NotContains(t, notSubjects, strings.ToUpper(first[:1])+first[1:],
					"%s: %s does not begin with its subject, as TestStop_EscalatesToSIGKILL does",
					f.set.Position(function.Pos()), function.Name.Name)
			}
		}
	}
}

func TestLines_AreShort(t *testing.T) {
	for _, f := range tree(t) {
		long := f.rawStrings()
		for i, line := range strings.Split(read(t, f.path), "\n") {
			width, most := utf8.RuneCountInString(line), maxCodeWidth
			if text := strings.TrimSpace(line); strings.HasPrefix(text, "//") {
				most = maxCommentWidth
				if strings.HasPrefix(text, "//go:") || strings.HasPrefix(text, "//nolint") || strings.Contains(text, "://") {
					continue
				}
			}
			if width > most && !slices.Contains(long, i+1) {
				assert.Fail(t, "a line is too long", "%s:%d has %d characters, %d are allowed", f.path, i+1, width, most)
			}
		}
	}
}

// TestWords_AreConstants: a program of the contract names a state or a result by its constant in
// package word. The words that are also the name of a verb or of an option are not checked.
func TestWords_AreConstants(t *testing.T) {
	states := slices.Concat(contract.States, []string{
		contract.Success, contract.ExitCode, contract.CoreDump, contract.OOMKill, contract.StartFailed,
		contract.SessionLost, contract.AgentLost,
	})
	for _, f := range tree(t) {
		inside := isInside(f.folder, "cmd/corralctl") || f.folder == "notify" ||
			isInside(f.folder, "dbusapi") && f.folder != "dbusapi/word"
		if f.test || !inside || f.path == "cmd/corralctl/doctor_corral.go" { // that has a state of systemd
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				text := strings.Trim(literal.Value, "`\"")
				assert.NotContains(t, states, text, "%s: %q is a constant of package word", f.set.Position(n.Pos()), text)
			}
			return true
		})
	}
}

// declared returns each identifier that the file declares.
func (s source) declared() []*ast.Ident {
	var names []*ast.Ident
	ast.Inspect(s.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			names = append(names, n.Name)
		case *ast.TypeSpec:
			names = append(names, n.Name)
		case *ast.ValueSpec:
			names = append(names, n.Names...)
		case *ast.Field:
			names = append(names, n.Names...)
		case *ast.LabeledStmt:
			names = append(names, n.Label)
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				names = appendIdents(names, n.Lhs...)
			}
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				names = appendIdents(names, n.Key, n.Value)
			}
		}
		return true
	})
	return names
}

func appendIdents(names []*ast.Ident, expressions ...ast.Expr) []*ast.Ident {
	for _, e := range expressions {
		if name, ok := e.(*ast.Ident); ok {
			names = append(names, name)
		}
	}
	return names
}

// rawStrings returns the numbers of the lines that belong to raw strings: their text cannot be
// wrapped.
func (s source) rawStrings() []int {
	var lines []int
	ast.Inspect(s.ast, func(n ast.Node) bool {
		if text, ok := n.(*ast.BasicLit); ok && text.Kind == token.STRING && text.Value[0] == '`' {
			for line := s.set.Position(text.Pos()).Line; line <= s.set.Position(text.End()).Line; line++ {
				lines = append(lines, line)
			}
		}
		return true
	})
	return lines
}

// wordsOf splits an identifier at underscores and capitals: "exitStatus" is "exit", "status", and
// "DBusName" is "d", "bus", "name".
func wordsOf(identifier string) []string {
	var words []string
	start := 0
	letters := []rune(identifier)
	end := func(i int) {
		if w := strings.Trim(strings.ToLower(string(letters[start:i])), "_0123456789"); w != "" {
			words = append(words, w)
		}
		start = i
	}
	for i := 1; i < len(letters); i++ {
		switch {
		case letters[i] == '_',
			unicode.IsUpper(letters[i]) && !unicode.IsUpper(letters[i-1]),
			unicode.IsUpper(letters[i]) && i+1 < len(letters) && unicode.IsLower(letters[i+1]):
			end(i)
		}
	}
	end(len(letters))
	if words == nil {
		words = []string{identifier}
	}
	return words
}
