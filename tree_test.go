// Package corral_test checks the architecture: which folders there are, which of them may import
// which, and the rules that apply to all of them. docs/ARCHITECTURE.md describes it. A change of
// the architecture changes both.
package corral_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/corrald/corral/"

// leaves know nothing about sessions. Every package may import them, including each other.
// docs/ARCHITECTURE.md describes them. One of them has nothing but the words of the contract.
var leaves = []string{
	"dbusapi/word",
	"internal/atomicfile", "internal/bus", "internal/clock", "internal/config",
	"internal/deadline", "internal/desktop", "internal/ecma48", "internal/environment",
	"internal/exitstatus", "internal/failpoint", "internal/fdpoll", "internal/hookreport", "internal/inotify",
	"internal/journal",
	"internal/keys", "internal/links", "internal/logind", "internal/loginshell", "internal/logtimes", "internal/mounts",
	"internal/outcome", "internal/plaintext", "internal/proc", "internal/program", "internal/propertysyntax",
	"internal/resettime", "internal/safefile", "internal/sandbox", "internal/setup", "internal/shimwire",
	"internal/sshagent", "internal/tcpport", "internal/termsizes", "internal/transient", "internal/trust",
	"internal/unitname", "internal/version",
	"internal/walltimer", "internal/worktree",
}

// plan lists, for each folder with Go code, the folders of this module that it may import. Imports
// go down only.
var plan = map[string][]string{
	// The programs. Nothing imports them. The client reads records itself if no daemon answers, and
	// reports that.
	"cmd/corralctl": slices.Concat([]string{
		"cmd/corralctl/hosts", "cmd/corralctl/top", "cmd/corralctl/transcript", "cmd/corralctl/wording",
		"dbusapi/client", "dbusapi", "notify", "supervisor/store", "supervisor/session",
	}, leaves),
	"cmd/corralctl/hosts":      {"cmd/corralctl/wording", "dbusapi/client", "internal/config"},
	"cmd/corralctl/top":        slices.Concat([]string{"cmd/corralctl/wording", "dbusapi/client", "dbusapi"}, leaves),
	"cmd/corralctl/transcript": {"internal/ecma48"},
	"cmd/corralctl/wording": {
		"dbusapi/client", "dbusapi/word", "internal/config", "internal/outcome", "internal/plaintext",
		"internal/resettime",
	},
	"cmd/corrald": slices.Concat([]string{
		"dbusapi/server", "notify", "dbusapi", "supervisor", "supervisor/effects", "supervisor/environments",
		"supervisor/session", "supervisor/sources", "supervisor/store", "units", "tmux",
	}, leaves),
	"cmd/corral-shim": {
		"dbusapi/word", "internal/clock", "internal/ecma48", "internal/exitstatus", "internal/keys",
		"internal/logtimes", "internal/outcome", "internal/proc", "internal/program", "internal/resettime",
		"internal/safefile", "internal/shimwire", "internal/termsizes", "internal/unitname", "internal/version",
	},

	// The bus: the contract and its two sides, which share nothing else.
	"dbusapi":        {},
	"dbusapi/client": slices.Concat([]string{"dbusapi"}, leaves),
	"dbusapi/server": slices.Concat([]string{
		"dbusapi", "supervisor", "supervisor/environments", "supervisor/session",
	}, leaves),

	// Desktop notifications: of the sessions of this machine in the daemon, of those of another one in
	// the client.
	"notify": leaves,

	// The event loop, the rules it decides by, its records, and what carries out its decisions. The
	// loop itself knows neither systemd nor tmux.
	"supervisor": slices.Concat([]string{
		"supervisor/conversations", "supervisor/environments", "supervisor/retention", "supervisor/session",
		"supervisor/sources", "supervisor/store", "supervisor/workspaces",
	}, leaves),
	"supervisor/conversations": slices.Concat([]string{"supervisor/session"}, leaves),
	"supervisor/environments": {
		"internal/atomicfile", "internal/bus", "internal/config", "internal/environment", "internal/loginshell",
		"internal/program", "internal/safefile", "internal/sshagent", "internal/transient",
	},
	"supervisor/retention": {"dbusapi/word", "supervisor/session", "internal/config"},
	"supervisor/session":   {"dbusapi/word", "internal/exitstatus", "internal/outcome"},
	"supervisor/sources":   {"internal/fdpoll", "internal/inotify"},
	"supervisor/store": {
		"supervisor/session", "internal/atomicfile", "internal/exitstatus", "internal/failpoint", "internal/safefile",
	},
	"supervisor/workspaces": {
		"supervisor/session", "supervisor/sources", "internal/deadline", "internal/inotify",
	},
	"supervisor/effects": slices.Concat([]string{
		"supervisor", "supervisor/conversations", "supervisor/environments", "supervisor/session", "units", "tmux",
	}, leaves),
	"units": leaves,
	"tmux":  leaves,

	// Tools for developers.
	"internal/bench":               slices.Concat([]string{"dbusapi/client", "dbusapi", "internal/testbed"}, leaves),
	"internal/manual":              {},
	"internal/licenses":            {},
	"internal/testbed":             slices.Concat([]string{"internal/testbed/claim", "internal/testbed/ready"}, leaves),
	"internal/testbed/claim":       {},
	"internal/testbed/debian":      slices.Concat([]string{"internal/testbed/claim"}, leaves),
	"internal/testbed/guest":       {"internal/testbed/claim", "internal/testbed/debian"},
	"internal/testbed/makeguest":   {"internal/testbed/guest"},
	"internal/testbed/modelmock":   {},
	"internal/testbed/machine":     {"internal/testbed/claim", "internal/testbed/debian", "internal/testbed/ready"},
	"internal/testbed/ready":       {},
	"internal/testbed/usermanager": {"internal/testbed"},
	"internal/testbed/bootmachine": {"internal/testbed/machine"},
}

func init() {
	for _, leaf := range leaves {
		plan[leaf] = leaves
	}
}

// onlyTests are folders that contain nothing but tests, which may import anything.
var onlyTests = []string{".", "contrib", "e2e", "e2e/agents"}

// forbiddenImports are packages of other modules that a folder must not depend on, neither directly
// nor through another package.
var forbiddenImports = map[string][]string{
	// It runs beside each agent for its whole life: it is small, and works without systemd and a bus.
	"cmd/corral-shim":    {"github.com/godbus/", "github.com/coreos/", "github.com/spf13/", "net/http", "encoding/json"},
	"supervisor/session": {"github.com/godbus/", "github.com/coreos/", "github.com/fsnotify/"},
	// Programs without a terminal and without options use the client as well.
	"dbusapi/client": {"github.com/spf13/"},
}

// mayLog lists the folders that may write to the journal or a terminal. All others return errors.
var mayLog = []string{
	"cmd/corrald", "cmd/corralctl", "cmd/corral-shim", "supervisor",
	"internal/journal", // writes to the journal for them
	// These print to a developer's terminal.
	"internal/bench", "internal/manual", "internal/licenses",
	"internal/testbed", "internal/testbed/usermanager", "internal/testbed/bootmachine",
}

// pure lists the folders that contain nothing but rules: the caller passes the time.
var pure = []string{"supervisor/retention", "supervisor/session"}

// noMutex lists the folders, with those below them, whose state belongs to one goroutine, or that
// have none: a mutex there is a mistake in the design.
var noMutex = []string{"supervisor", "units", "tmux", "dbusapi"}

const maxLines = 500

func TestFolders_AreInTheArchitecture(t *testing.T) {
	folders := map[string]bool{}
	for _, f := range tree(t) {
		folders[f.folder] = true
		if !slices.Contains(onlyTests, f.folder) {
			_, ok := plan[f.folder]
			assert.True(t, ok, "%s: the folder is not in the plan of tree_test.go", f.path)
		}
	}
	for folder := range plan {
		assert.True(t, folders[folder], "the plan lists %s, which does not exist", folder)
	}
}

func TestImports_GoDownOnly(t *testing.T) {
	for _, f := range tree(t) {
		if slices.Contains(onlyTests, f.folder) {
			continue
		}
		for _, imported := range f.imports() {
			ours, ok := strings.CutPrefix(imported, module)
			// A test may also import the package under test and the test bed.
			may := !ok || slices.Contains(plan[f.folder], ours) ||
				f.test && (ours == f.folder || strings.HasPrefix(ours+"/", "internal/testbed/"))
			assert.True(t, may, "%s may not import %s", f.path, ours)
		}
	}
}

func TestDependencies_AreNotForbidden(t *testing.T) {
	imports := map[string][]string{} // by folder, tests apart
	for _, f := range tree(t) {
		if !f.test {
			imports[f.folder] = append(imports[f.folder], f.imports()...)
		}
	}
	for folder, bad := range forbiddenImports {
		for _, imported := range transitiveImports(imports, folder) {
			for _, b := range bad {
				below := strings.HasSuffix(b, "/") && strings.HasPrefix(imported, b) && !strings.HasPrefix(imported, module)
				banned := imported == b || below
				assert.False(t, banned, "%s must not depend on %s", folder, imported)
			}
		}
	}
}

// TestRules_ArePure: the next value of a session depends on its value and on one event, not on a
// clock or a file.
func TestRules_ArePure(t *testing.T) {
	for _, f := range tree(t) {
		if f.test || !slices.Contains(pure, f.folder) {
			continue
		}
		for _, impure := range []string{
			"os", "os/exec", "net", "context", "sync", "sync/atomic", "math/rand", "math/rand/v2", "syscall",
		} {
			assert.NotContains(t, f.imports(), impure, "%s: rules have no effects", f.path)
		}
		f.selectors("time", func(name string, at token.Position) {
			assert.NotContains(t, []string{"Now", "Since", "Until", "After", "NewTimer", "AfterFunc"}, name,
				"%s: the caller passes the time", at)
		})
	}
}

// transitiveImports returns what the folder imports, directly and through other packages of this
// module.
func transitiveImports(imports map[string][]string, folder string) []string {
	var all []string
	seen := map[string]bool{folder: true}
	for queue := []string{folder}; len(queue) > 0; queue = queue[1:] {
		for _, imported := range imports[queue[0]] {
			all = append(all, imported)
			if ours, ok := strings.CutPrefix(imported, module); ok && !seen[ours] {
				seen[ours] = true
				queue = append(queue, ours)
			}
		}
	}
	return all
}

func TestPackages_AreNamedAfterTheirFolder(t *testing.T) {
	for _, f := range tree(t) {
		name := strings.TrimSuffix(f.ast.Name.Name, "_test")
		assert.NotContains(t, []string{
			"util", "utils", "common", "types", "helper", "helpers", "misc", "base", "shared", "lib",
		}, name, f.path)
		if name != "main" && f.folder != "." {
			assert.Equal(t, path.Base(f.folder), name, "%s: a package has the name of its folder", f.path)
		}
	}
}

func TestFiles_AreShort(t *testing.T) {
	for _, f := range tree(t) {
		if lines := f.set.File(f.ast.FileStart).LineCount(); !f.test {
			assert.LessOrEqual(t, lines, maxLines, "%s is too long: split off its second subject", f.path)
		}
	}
}

func TestMutexes_AreNotUsedInTheCore(t *testing.T) {
	for _, f := range tree(t) {
		if f.test || !slices.ContainsFunc(noMutex, func(folder string) bool { return isInside(f.folder, folder) }) {
			continue
		}
		f.selectors("sync", func(name string, at token.Position) {
			assert.NotContains(t, []string{"Mutex", "RWMutex"}, name, "%s: post to the event loop instead", at)
		})
	}
}

func TestLibraries_NeitherLogNorPrint(t *testing.T) {
	for _, f := range tree(t) {
		if f.test || slices.ContainsFunc(mayLog, func(s string) bool {
			return strings.HasPrefix(f.folder+"/", s) && (s != "supervisor" || f.folder == s)
		}) {
			continue
		}
		for _, logger := range []string{"log", "log/slog"} {
			assert.NotContains(t, f.imports(), logger, "%s: only the programs and the event loop log", f.path)
		}
		f.selectors("fmt", func(name string, at token.Position) {
			assert.False(t, strings.HasPrefix(name, "Print"), "%s: only the programs print", at)
		})
		f.selectors("os", func(name string, at token.Position) {
			assert.NotContains(t, []string{"Stdout", "Stderr", "Exit"}, name, "%s: only the programs use it", at)
		})
	}
}

func TestSources_NeitherSleepNorSkipTests(t *testing.T) {
	for _, f := range tree(t) {
		f.selectors("time", func(name string, at token.Position) {
			assert.NotEqual(t, "Sleep", name, "%s: wait for the event, with a deadline", at)
		})
		for _, tb := range []string{"t", "b", "f", "tb"} {
			f.selectors(tb, func(name string, at token.Position) {
				assert.NotContains(t, []string{"Skip", "Skipf", "SkipNow"}, name,
					"%s: a test that cannot run here belongs behind a build tag and a make target", at)
			})
		}
	}
}

// TestTimers_AreThoseOfPackageDeadline: a stopped timer of the Go runtime still wakes the process
// at its time.
func TestTimers_AreThoseOfPackageDeadline(t *testing.T) {
	daemon := []string{"cmd/corrald", "dbusapi/server", "notify", "supervisor", "units", "tmux"}
	for _, f := range tree(t) {
		if f.test || !slices.ContainsFunc(daemon, func(folder string) bool { return isInside(f.folder, folder) }) {
			continue
		}
		for pkg, timers := range map[string][]string{
			"time":    {"AfterFunc", "After", "NewTimer"},
			"context": {"WithTimeout", "WithDeadline"},
		} {
			f.selectors(pkg, func(name string, at token.Position) {
				assert.NotContains(t, timers, name, "%s: use package deadline", at)
			})
		}
	}
}

// TestFailpoints_AreHitByACrashTest: a test ends the daemon at every failpoint.
func TestFailpoints_AreHitByACrashTest(t *testing.T) {
	crashes := read(t, "cmd/corrald/crash_test.go")
	for _, f := range tree(t) {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 1 {
				return true
			}
			hit, _ := call.Fun.(*ast.SelectorExpr)
			name, _ := call.Args[0].(*ast.BasicLit)
			if hit != nil && name != nil && hit.Sel.Name == "Hit" {
				assert.Contains(t, crashes, name.Value, "%s: cmd/corrald/crash_test.go has no row for this failpoint",
					f.set.Position(call.Pos()))
			}
			return true
		})
	}
}

// TestFuzzTests_HaveACorpus: the fuzzer starts from it, and every test run tries it.
func TestFuzzTests_HaveACorpus(t *testing.T) {
	walk(t, func(p string, entry fs.DirEntry) {
		if entry.IsDir() || !strings.HasSuffix(p, "_test.go") {
			return
		}
		for _, name := range regexp.MustCompile(`(?m)^func (Fuzz\w+)\(f `).FindAllStringSubmatch(read(t, p), -1) {
			corpus, err := os.ReadDir(path.Join(path.Dir(p), "testdata/fuzz", name[1]))
			require.NoError(t, err, "%s of %s", name[1], p)
			assert.NotEmpty(t, corpus, "%s of %s", name[1], p)
		}
	})
}

func TestArchitecturePage_NamesEveryFolder(t *testing.T) {
	text := read(t, "docs/ARCHITECTURE.md")
	for _, folder := range folders(t) {
		named := strings.Contains(text, "`"+folder+"`")
		assert.True(t, named, "docs/ARCHITECTURE.md does not describe the folder %s", folder)
	}
}

var (
	makeCommand  = regexp.MustCompile("(?m)(?:^|`)(?:sudo )?make ([a-z0-9 -]+?)(?: [A-Z]+=.*|)(?:`|$| +#)")
	makeTarget   = regexp.MustCompile(`(?m)^([a-z0-9-]+):`)
	relativeLink = regexp.MustCompile(`\]\(([^):#]+)\)`)
)

func TestDocuments_NameWhatExists(t *testing.T) {
	var targets []string
	for _, m := range makeTarget.FindAllStringSubmatch(read(t, "Makefile"), -1) {
		targets = append(targets, m[1])
	}
	documents, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	records, err := filepath.Glob("docs/decisions/*.md")
	require.NoError(t, err)
	agents, err := filepath.Glob("docs/agents/*.md")
	require.NoError(t, err)
	others := []string{"README.md", "HACKING.md", "contrib/README.md"}
	for _, document := range slices.Concat(others, documents, records, agents) {
		text := read(t, document)
		for _, m := range makeCommand.FindAllStringSubmatch(text, -1) {
			for target := range strings.FieldsSeq(m[1]) {
				assert.Contains(t, targets, target, "%s names `make %s`", document, target)
			}
		}
		for _, m := range relativeLink.FindAllStringSubmatch(text, -1) {
			assert.FileExists(t, filepath.Join(filepath.Dir(document), m[1]), "%s links to it", document)
		}
	}
}

// TestVersion_IsTheSameEverywhere: the changelog begins with the version of the packages and of the
// desktop metadata.
func TestVersion_IsTheSameEverywhere(t *testing.T) {
	m := regexp.MustCompile(`(?m)^## (\S+)`).FindStringSubmatch(read(t, "CHANGELOG.md"))
	require.NotNil(t, m)
	for path, line := range map[string]string{
		"packaging/desktop/io.github.corrald.Corral.metainfo.xml": `<release version="%s"`,
		"debian/changelog":              "corral (%s-",
		"packaging/fedora/corral.spec":  "Version:        %s\n",
		"contrib/arch/release/PKGBUILD": "pkgver=%s\n",
	} {
		assert.Contains(t, read(t, path), fmt.Sprintf(line, m[1]), path)
	}
}

// TestAgents_HaveAPage: each agent has a page in docs/agents, which the index names.
func TestAgents_HaveAPage(t *testing.T) {
	definitions, err := filepath.Glob("agents/*.agent")
	require.NoError(t, err)
	pages, err := filepath.Glob("docs/agents/*.md")
	require.NoError(t, err)
	templates, err := filepath.Glob("agents/*@.agent")
	require.NoError(t, err)
	assert.Len(t, pages, len(definitions)-len(templates)+1, "one for each, and the index")
	index := read(t, "docs/agents/README.md")
	for _, definition := range definitions {
		name, isTemplate := strings.CutSuffix(strings.TrimSuffix(filepath.Base(definition), ".agent"), "@")
		if isTemplate {
			assert.Contains(t, read(t, "docs/agents/"+name+".md"), "\n## Several accounts\n", name)
		}
		assert.Contains(t, index, "\n| ["+name+"]("+name+".md) |")
		page := read(t, "docs/agents/"+name+".md")
		for _, part := range []string{"# ", "## What Corral knows, and how", "## What it does not know", "## What to set"} {
			assert.Contains(t, page, part, name)
		}
	}
}

// TestDocuments_ShowTheStateTableAndExistingTests: the table of states in the manual is the one
// printed from the rules, and each test that a document names exists.
func TestDocuments_ShowTheStateTableAndExistingTests(t *testing.T) {
	states := read(t, "supervisor/session/testdata/states.txt")
	assert.Contains(t, read(t, "docs/SURVIVAL.md"), "```text\n"+strings.TrimRight(states, "\n")+"\n```\n",
		"docs/SURVIVAL.md does not show supervisor/session/testdata/states.txt")
	var tests []string
	for _, f := range tree(t) {
		for _, d := range f.ast.Decls {
			if function, ok := d.(*ast.FuncDecl); ok && f.test {
				tests = append(tests, function.Name.Name)
			}
		}
	}
	for _, document := range []string{"docs/SURVIVAL.md", "docs/REQUIREMENTS.md"} {
		for _, m := range namedTest.FindAllStringSubmatch(read(t, document), -1) {
			name, more := strings.CutSuffix(m[1], "…")
			known := slices.ContainsFunc(tests, func(test string) bool {
				return test == name || more && strings.HasPrefix(test, name)
			})
			assert.True(t, known, "%s names the test %s", document, m[1])
		}
	}
}

var namedTest = regexp.MustCompile("`(Test[A-Za-z0-9_]+…?)`")

// source is one Go file of the tree.
type source struct {
	path   string
	folder string
	test   bool
	set    *token.FileSet
	ast    *ast.File
}

func (s source) imports() []string {
	var all []string
	for _, i := range s.ast.Imports {
		if p, err := strconv.Unquote(i.Path.Value); err == nil {
			all = append(all, p)
		}
	}
	return all
}

// selectors calls found for each X that the file selects as name.X.
func (s source) selectors(name string, found func(selected string, at token.Position)) {
	ast.Inspect(s.ast, func(n ast.Node) bool {
		if selector, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := selector.X.(*ast.Ident); ok && x.Name == name {
				found(selector.Sel.Name, s.set.Position(selector.Pos()))
			}
		}
		return true
	})
}

// tree parses every Go file, including those with build tags.
func tree(t *testing.T) []source {
	t.Helper()
	var all []source
	walk(t, func(p string, entry fs.DirEntry) {
		if entry.IsDir() || path.Ext(p) != ".go" {
			return
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, p, nil, parser.SkipObjectResolution|parser.ParseComments)
		require.NoError(t, err)
		all = append(all, source{path: p, folder: path.Dir(p), test: strings.HasSuffix(p, "_test.go"), set: set, ast: file})
	})
	require.NotEmpty(t, all)
	return all
}

// folders returns every folder that contains files.
func folders(t *testing.T) []string {
	t.Helper()
	var all []string
	walk(t, func(p string, entry fs.DirEntry) {
		if folder := path.Dir(p); !entry.IsDir() && folder != "." && !slices.Contains(all, folder) {
			all = append(all, folder)
		}
	})
	return all
}

// walk visits the tree, except git's data, build results and test data.
func walk(t *testing.T, visit func(p string, entry fs.DirEntry)) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(".", func(p string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && slices.Contains([]string{".git", "build", "dist", "testdata"}, entry.Name()) {
			return filepath.SkipDir
		}
		visit(filepath.ToSlash(p), entry)
		return nil
	}))
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(text)
}
