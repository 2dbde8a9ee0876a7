package corral_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// maxMethods is the limit for one type. The methods of an object share all of its state: an object
// with more of them is several objects, and nobody can see which of them a field belongs to.
const maxMethods = 60

// maxFields is the limit for the state of one object, for the same reason.
const maxFields = 25

// core lists the folders, with those below them, whose structs have at most maxFields fields.
var core = []string{"supervisor", "units", "tmux", "dbusapi/server", "notify", "cmd/corrald"}

// largeRecords are the only larger structs there, with the reason: each is a list of values that
// are saved, or sent, together.
var largeRecords = map[string]string{
	"supervisor/session.Session": "the record of a session, as it is saved",
	"supervisor/session.Run":     "the record of a run, as it is saved",
	"supervisor.Snapshot":        "the properties of a session, as they are published",
}

func TestSupervisor_HasFewMethods(t *testing.T) {
	methods := map[string]int{} // by folder and type
	for _, f := range tree(t) {
		if f.test || !isInside(f.folder, "supervisor") {
			continue
		}
		for _, name := range f.functions() {
			if receiver, _, isMethod := strings.Cut(name, "."); isMethod {
				methods[f.folder+"."+receiver]++
			}
		}
	}
	require.Contains(t, methods, "supervisor.Supervisor")
	for name, n := range methods {
		assert.LessOrEqual(t, n, maxMethods,
			"%s has too many methods: extract a type or a package with its own state", name)
	}
}

func TestStructs_AreSmall(t *testing.T) {
	large := map[string]bool{}
	for _, f := range tree(t) {
		if f.test || !slices.ContainsFunc(core, func(folder string) bool { return isInside(f.folder, folder) }) {
			continue
		}
		for _, s := range f.structs() {
			n := len(s.fields) + len(s.embedded)
			if n <= maxFields {
				continue
			}
			name := f.folder + "." + s.name
			large[name] = true
			assert.NotEmpty(t, largeRecords[name], "%s: %s has %d fields, %d are allowed: "+
				"make a type of those that change together", s.at, name, n, maxFields)
		}
	}
	for name := range largeRecords {
		assert.True(t, large[name], "largeRecords lists %s, which is not a large struct", name)
	}
}

// TestSupervisor_EmbedsNothing: an embedded type adds fields and methods that no limit counts. An
// exported field is state that another package can change outside of the event loop.
func TestSupervisor_EmbedsNothing(t *testing.T) {
	for _, f := range tree(t) {
		if f.test || f.folder != "supervisor" {
			continue
		}
		for _, s := range f.structs() {
			assert.Empty(t, s.embedded, "%s: %s embeds a type", s.at, s.name)
			if s.name == "Supervisor" || s.name == "loop" {
				assert.Empty(t, slices.DeleteFunc(s.fields, func(field string) bool { return !ast.IsExported(field) }),
					"%s: %s has exported fields", s.at, s.name)
			}
		}
	}
}

// walkTitles are the sections of the chapter “Walks” of docs/ARCHITECTURE.md.
var walkTitles = []string{"A session starts", "An agent exits", "The daemon adopts running sessions"}

// maxWalkFiles is how many Go files a reader of one walk has to open.
const maxWalkFiles = 4

var (
	walkItem     = regexp.MustCompile(`\n(?:\d+\. |\n)`)      // begins an item of a list, or a paragraph
	walkFunction = regexp.MustCompile("`([^`\\s]+\\))`")      // `Next()` or `Supervisor.Start()`
	walkFile     = regexp.MustCompile(`\]\(([^():#]+\.go)\)`) // [operations.go](../supervisor/operations.go)
	walksChapter = regexp.MustCompile(`(?s)\n## Walks\n(.*?)(?:\n## |$)`)
)

// TestArchitecturePage_WalksNameWhatExists: the chapter describes how the code works, and so it has
// to change with the code. In an item of a list, or a paragraph, each name in backquotes that ends
// in () is a function, `Next()`, or a method, `Supervisor.Start()`, without its package. One of the
// Go files to which the same item links declares it, and each of these files declares one of the
// item's functions.
func TestArchitecturePage_WalksNameWhatExists(t *testing.T) {
	declared := map[string][]string{} // by file
	for _, f := range tree(t) {
		declared[f.path] = f.functions()
	}
	chapter := walksChapter.FindStringSubmatch(read(t, "docs/ARCHITECTURE.md"))
	require.NotNil(t, chapter, "docs/ARCHITECTURE.md has no chapter Walks")
	var titles []string
	for i, section := range strings.Split(chapter[1], "\n### ") {
		title, text, _ := strings.Cut(section, "\n")
		if i == 0 {
			title, text = "Walks", section
		} else {
			titles = append(titles, title)
			assert.True(t, strings.HasPrefix(text, "1. "), "the walk %q is not a numbered list", title)
		}
		files := map[string]bool{}
		for _, item := range walkItem.Split(text, -1) {
			checkWalkItem(t, title, item, declared, files)
		}
		assert.LessOrEqual(t, len(files), maxWalkFiles, "the walk %q names too many Go files", title)
	}
	assert.Equal(t, walkTitles, titles)
}

// checkWalkItem checks one item of a walk, and adds the Go files that it names to files.
func checkWalkItem(t *testing.T, walk, item string, declared map[string][]string, files map[string]bool) {
	t.Helper()
	var functions, inFiles []string
	for _, m := range walkFunction.FindAllStringSubmatch(item, -1) {
		functions = append(functions, strings.TrimSuffix(m[1], "()"))
	}
	for _, m := range walkFile.FindAllStringSubmatch(item, -1) {
		file := path.Join("docs", m[1])
		files[file] = true
		inFiles = append(inFiles, declared[file]...)
		isDeclared := func(function string) bool { return slices.Contains(declared[file], function) }
		assert.True(t, slices.ContainsFunc(functions, isDeclared),
			"the walk %q links to %s, which does not exist, or declares no function that the item names", walk, file)
	}
	for _, function := range functions {
		assert.True(t, slices.Contains(inFiles, function),
			"the walk %q names %s(), which no Go file that the item links to declares", walk, function)
	}
}

func isInside(folder, parent string) bool { return strings.HasPrefix(folder+"/", parent+"/") }

// functions returns the functions and methods that the file declares, as Next and Supervisor.Start.
func (s source) functions() []string {
	var names []string
	for _, declaration := range s.ast.Decls {
		if f, ok := declaration.(*ast.FuncDecl); ok {
			name := f.Name.Name
			if f.Recv != nil {
				name = typeName(f.Recv.List[0].Type) + "." + name
			}
			names = append(names, name)
		}
	}
	return names
}

// structType is a struct type in a file.
type structType struct {
	name             string // "" for a type without a name
	at               token.Position
	fields, embedded []string // their names, including those of unnamed structs inside
}

// structs returns the struct types in the file, including those inside of functions.
func (s source) structs() []structType {
	var all []structType
	names := map[ast.Node]string{}
	ast.Inspect(s.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.TypeSpec:
			names[n.Type] = n.Name.Name
		case *ast.StructType:
			found := structType{name: names[n], at: s.set.Position(n.Pos())}
			found.addFields(n)
			all = append(all, found)
			return false
		}
		return true
	})
	return all
}

func (s *structType) addFields(from *ast.StructType) {
	ast.Inspect(from, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncType, *ast.InterfaceType: // their parameters and methods are not fields
			return false
		case *ast.Field:
			for _, name := range n.Names {
				s.fields = append(s.fields, name.Name)
			}
			if len(n.Names) == 0 {
				s.embedded = append(s.embedded, typeName(n.Type))
			}
		}
		return true
	})
}

// typeName returns the name of a receiver's type or of an embedded type, without its package.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.IndexExpr: // with a type parameter
		return typeName(e.X)
	case *ast.IndexListExpr:
		return typeName(e.X)
	}
	return fmt.Sprint(e)
}
