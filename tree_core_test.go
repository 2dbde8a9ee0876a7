package corral_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"path/filepath"
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
	large, checked := map[string]bool{}, map[string]bool{}
	for _, f := range tree(t) {
		i := slices.IndexFunc(core, func(folder string) bool { return isInside(f.folder, folder) })
		if f.test || i < 0 {
			continue
		}
		for _, s := range f.structs() {
			checked[core[i]] = true
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
	for _, folder := range core {
		assert.True(t, checked[folder], "core lists %s, in which no struct was found", folder)
	}
	for name := range largeRecords {
		assert.True(t, large[name], "largeRecords lists %s, which is not a large struct", name)
	}
}

// TestSupervisor_EmbedsNothing: an embedded type adds fields and methods that no limit counts. An
// exported field of Supervisor would be state that other packages can change outside of the event
// loop. They have no access to values of the unexported types, such as loop and entry.
func TestSupervisor_EmbedsNothing(t *testing.T) {
	found := false
	for _, f := range tree(t) {
		if f.test || f.folder != "supervisor" {
			continue
		}
		for _, s := range f.structs() {
			assert.Empty(t, s.embedded, "%s: %s embeds a type", s.at, s.name)
			if s.name == "Supervisor" {
				found = true
				assert.Empty(t, slices.DeleteFunc(s.fields, func(field string) bool { return !ast.IsExported(field) }),
					"%s: %s has exported fields", s.at, s.name)
			}
		}
	}
	require.True(t, found, "package supervisor has no struct Supervisor")
}

// walkTitles are the sections of the chapter “Walks” of docs/ARCHITECTURE.md.
var walkTitles = []string{"A session starts", "An agent exits", "The daemon adopts running sessions"}

// maxWalkFiles limits how many Go files one walk links to.
const maxWalkFiles = 4

var (
	walkItem     = regexp.MustCompile(`\n(?:\d+\. |\n)`)                    // begins an item of a list, or a paragraph
	walkFunction = regexp.MustCompile("`([^`\\s]+\\))`")                    // `Next()` or `Supervisor.Start()`
	walkFile     = regexp.MustCompile(`\]\(([^()]*\.go(?:[#? ][^()]*)?)\)`) // [operations.go](../supervisor/operations.go)
	walkType     = regexp.MustCompile("`([A-Z][A-Za-z0-9]*)`")              // `StartScope`
	walksChapter = regexp.MustCompile(`(?s)\n## Walks\n(.*?)(?:\n## |$)`)

	dbusName     = regexp.MustCompile(`<(?:method|signal) name="(\w+)"`)
	partsDiagram = regexp.MustCompile("(?s)\n## The event loop and its parts\n```\n(.+?)\n```\n")
	partNames    = regexp.MustCompile(`^ +(\w+(?: · \w+)*)(?:  |$)`) // at the beginning of a line of the diagram
)

// TestArchitecturePage_WalksNameWhatExists: the chapter describes how the code works, and so it has
// to change with the code. In an item of a list, or a paragraph, each name in backquotes that ends
// in () is a function, `Next()`, or a method, `Supervisor.Start()`, without its package. One of the
// Go files to which the same item links declares it, and each of these files declares one of the
// item's functions. A link leads to a whole file, not to a line of it.
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
			"the walk %q links to %s, which is not a Go file, or declares no function that the item names", walk, file)
	}
	for _, function := range functions {
		assert.True(t, slices.Contains(inFiles, function),
			"the walk %q names %s(), which no Go file that the item links to declares", walk, function)
	}
}

// TestArchitecturePage_WalksNameTypesOfPackageSession: each other name in backquotes that has the
// form of an exported identifier of Go, such as `StartScope`, is that of an event, an effect or a
// phase: a type or a constant of that package. Methods and signals of D-Bus, and the signals of
// signal(7), have names of this form as well.
func TestArchitecturePage_WalksNameTypesOfPackageSession(t *testing.T) {
	known := declaredNames(t, "supervisor/session", token.TYPE, token.CONST)
	files, err := filepath.Glob("dbusapi/*.xml")
	require.NoError(t, err)
	for _, file := range append(files, "dbusapi/server/introspect.go") { // the latter has the standard interfaces
		for _, m := range dbusName.FindAllStringSubmatch(read(t, file), -1) {
			known = append(known, m[1])
		}
	}
	names := walkType.FindAllStringSubmatch(walksChapter.FindString(read(t, "docs/ARCHITECTURE.md")), -1)
	require.NotEmpty(t, names)
	for _, m := range names {
		assert.True(t, slices.Contains(known, m[1]) || strings.HasPrefix(m[1], "SIG"),
			"a walk names %s, which is neither a type or constant of supervisor/session nor a name on the bus", m[1])
	}
}

// TestArchitecturePage_PartsAreTypes: each name in the diagram of the event loop and its parts is
// that of a type.
func TestArchitecturePage_PartsAreTypes(t *testing.T) {
	diagram := partsDiagram.FindStringSubmatch(read(t, "docs/ARCHITECTURE.md"))
	require.NotNil(t, diagram, "docs/ARCHITECTURE.md has no diagram of the event loop and its parts")
	types := declaredNames(t, "supervisor", token.TYPE)
	for line := range strings.Lines(diagram[1]) {
		names := partNames.FindStringSubmatch(strings.TrimRight(line, "\n"))
		require.NotNil(t, names, "the line %q of the diagram does not begin with names", line)
		for name := range strings.SplitSeq(names[1], " · ") {
			assert.True(t, slices.Contains(types, name), "the diagram names %s, which is not a type of package supervisor", name)
		}
	}
}

// declaredNames returns the names that the package in the folder declares outside of functions with
// these keywords: token.TYPE, token.CONST or token.VAR.
func declaredNames(t *testing.T, folder string, keywords ...token.Token) []string {
	t.Helper()
	var names []string
	for _, f := range tree(t) {
		if f.test || f.folder != folder {
			continue
		}
		for _, declaration := range f.ast.Decls {
			group, ok := declaration.(*ast.GenDecl)
			if !ok || !slices.Contains(keywords, group.Tok) {
				continue
			}
			for _, spec := range group.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					names = append(names, spec.Name.Name)
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						names = append(names, name.Name)
					}
				}
			}
		}
	}
	return names
}

// isInside reports whether the folder is parent, or below it.
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

var (
	waitsChapter = regexp.MustCompile(`(?s)\n## Waits\n(.*?)\n## `)
	locksChapter = regexp.MustCompile(`(?s)\n## Locks\n(.*?)\n## `)
	waitConstant = regexp.MustCompile("`([a-z]\\w+)` (\\d+) (ms|s|min)\\b") // `retryInterval` 20 ms
	waitUnits    = map[string]string{"ms": "Millisecond", "s": "Second", "min": "Minute"}

	// lockUse matches what has the effect of a lock: also a buffered channel, which limits how many
	// goroutines proceed.
	lockUse = regexp.MustCompile(`\bsync\.(Mutex|RWMutex|Map)\b|\batomic\.[A-Z]|make\(chan struct\{\}, `)
)

// linkedFiles returns the Go files to which a part of docs/ARCHITECTURE.md links.
func linkedFiles(text string) (files []string) {
	for _, m := range walkFile.FindAllStringSubmatch(text, -1) {
		files = append(files, path.Join("docs", m[1]))
	}
	return files
}

// isOfDaemon reports whether a file is code of the daemon, or of a package that it may use.
func isOfDaemon(f source) bool {
	inside := func(folder string) bool { return isInside(f.folder, folder) }
	return !f.test && (slices.ContainsFunc(core, inside) || slices.Contains(leaves, f.folder)) &&
		f.folder != "internal/failpoint"
}

// TestArchitecturePage_ListsTheWaits: the constants in the chapter have the values that it names,
// in a file to which the same line links. Each file with a ticker is among these files.
func TestArchitecturePage_ListsTheWaits(t *testing.T) {
	chapter := waitsChapter.FindString(read(t, "docs/ARCHITECTURE.md"))
	require.NotEmpty(t, chapter)
	for line := range strings.Lines(chapter) {
		for _, m := range waitConstant.FindAllStringSubmatch(line, -1) {
			value := "time." + waitUnits[m[3]]
			if m[2] != "1" {
				value = m[2] + " * " + value
			}
			declaration := regexp.MustCompile(`\b` + m[1] + `\s+= ` + regexp.QuoteMeta(value) + `\b`)
			assert.True(t, slices.ContainsFunc(linkedFiles(line), func(file string) bool {
				return declaration.MatchString(read(t, file))
			}), "no file in this line declares %s = %s: %s", m[1], value, line)
		}
	}
	for _, f := range tree(t) {
		isOfShim := f.folder == "cmd/corral-shim" && !f.test
		if (isOfDaemon(f) || isOfShim) && strings.Contains(read(t, f.path), "time.NewTicker(") {
			assert.Contains(t, linkedFiles(chapter), f.path, "a wait that the chapter does not list")
		}
	}
}

// TestArchitecturePage_ListsTheLocks: the chapter links to the files of the daemon that contain a
// lock, and to no other ones.
func TestArchitecturePage_ListsTheLocks(t *testing.T) {
	chapter := locksChapter.FindString(read(t, "docs/ARCHITECTURE.md"))
	require.NotEmpty(t, chapter)
	var files []string
	for _, f := range tree(t) {
		if isOfDaemon(f) && lockUse.MatchString(read(t, f.path)) {
			files = append(files, f.path)
		}
	}
	assert.ElementsMatch(t, files, linkedFiles(chapter))
}
