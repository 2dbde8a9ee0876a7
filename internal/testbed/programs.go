package testbed

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Binaries are the paths of Corral's programs, built from this checkout.
type Binaries struct {
	Corrald, Corralctl, Shim string
}

// Programs builds Corral's programs, once for each test binary, and returns their paths. They are
// built without cgo, as in a release, except that corrald is built with the race detector if the
// test binary is. corrald always contains its failpoints.
func Programs(t testing.TB) Binaries {
	t.Helper()
	dir := built(t, buildRequest{Race: raceDetector})
	return Binaries{
		Corrald: filepath.Join(dir, "corrald"), Corralctl: filepath.Join(dir, "corralctl"),
		Shim: filepath.Join(dir, "corral-shim"),
	}
}

// CorraldWithoutRace returns the path of a corrald without the race detector, for tests that
// measure memory.
func CorraldWithoutRace(t testing.TB) string {
	t.Helper()
	return filepath.Join(built(t, buildRequest{Measured: true}), "corrald-measured")
}

// ProgramsOf builds Corral's programs from a commit of this checkout's history, without the race
// detector and failpoints, and returns their paths.
func ProgramsOf(t testing.TB, commit string) Binaries {
	t.Helper()
	dir := filepath.Join(built(t, buildRequest{Commit: commit}), commit)
	return Binaries{
		Corrald: filepath.Join(dir, "corrald"), Corralctl: filepath.Join(dir, "corralctl"),
		Shim: filepath.Join(dir, "corral-shim"),
	}
}

// built returns the directory of the programs after the request has been served.
func built(t testing.TB, request buildRequest) string {
	t.Helper()
	b := current(t)
	if b.owner == nil {
		t.Fatal("testbed: a process that a test started cannot build programs: hand it their paths")
	}
	if err := b.owner.build(request); err != nil {
		t.Fatal(err)
	}
	return b.programDir()
}

// connection is the socket to the owner, which has what the tests lack: the caller's home directory
// and build cache, and permission to read the checkout.
type connection struct {
	decoder *json.Decoder
	encoder *json.Encoder
	mu      sync.Mutex
	results map[buildRequest]error
}

// buildRequest asks the owner to build the programs, or the corrald for measurements, or the
// programs of a commit; buildReply contains the error, if any.
type (
	buildRequest struct {
		Race, Measured bool
		Commit         string
	}
	buildReply struct{ Error string }
)

func (c *connection) build(request buildRequest) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err, asked := c.results[request]; asked {
		return err
	}
	var reply buildReply
	err := c.encoder.Encode(request)
	if err == nil {
		err = c.decoder.Decode(&reply)
	}
	if err == nil && reply.Error != "" {
		err = fmt.Errorf("cannot build Corral's programs: %s", reply.Error)
	}
	c.results[request] = err
	return err
}

// serveBuilds serves the tests' build requests until the connection is closed.
func serveBuilds(conn net.Conn, dir string) {
	decoder, encoder := json.NewDecoder(conn), json.NewEncoder(conn)
	for {
		var request buildRequest
		if decoder.Decode(&request) != nil {
			return
		}
		var reply buildReply
		if err := buildPrograms(dir, request); err != nil {
			reply.Error = err.Error()
		}
		if encoder.Encode(reply) != nil {
			return
		}
	}
}

// programNames are the programs and the names of their packages below cmd.
var programNames = []string{"corrald", "corralctl", "corral-shim"}

// buildPrograms builds into a directory that all test binaries share, so that each program is
// linked only once, and copies the programs from there.
func buildPrograms(dir string, request buildRequest) error {
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	shared := filepath.Join(cache, "corral-testbed", "bin")
	if err := os.MkdirAll(shared, 0o755); err != nil {
		return err
	}
	lock, err := os.Open(shared)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	if request.Commit != "" {
		return buildCommit(filepath.Join(dir, request.Commit), request.Commit)
	}
	if request.Measured {
		return buildInto(shared, filepath.Join(dir, "corrald-measured"), "corrald", false)
	}
	for _, name := range programNames {
		if err := buildInto(shared, filepath.Join(dir, name), name, request.Race && name == "corrald"); err != nil {
			return err
		}
	}
	return nil
}

// buildInto builds a program in the shared directory and copies it to target.
func buildInto(shared, target, name string, race bool) error {
	built := filepath.Join(shared, name)
	if name == "corrald" {
		built += "-failpoints"
	}
	if race {
		built += "-race"
	}
	if err := buildProgram(name, built, race); err != nil {
		return err
	}
	return CopyProgram(built, target)
}

func buildProgram(name, output string, race bool) error {
	cmd := exec.Command("go", "build", "-trimpath", "-o", output)
	if name == "corrald" {
		cmd.Args = append(cmd.Args, "-tags=failpoints")
	}
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if race {
		cmd.Args = append(cmd.Args, "-race")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	}
	cmd.Args = append(cmd.Args, "github.com/corrald/corral/cmd/"+name)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, strings.TrimSpace(string(output)))
	}
	return nil
}

// buildCommit builds the programs of a commit into a directory that it creates. The commit is that
// of the repository in or above the working directory.
func buildCommit(target, commit string) error {
	if err := os.Mkdir(target, 0o755); err != nil {
		return err
	}
	source, err := os.MkdirTemp("", "corral-"+commit+"-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(source) }()
	cmd := exec.Command("bash", "-ec", `set -o pipefail
		git -C "$(git rev-parse --show-toplevel)" archive "$1" | tar -x -C "$2"
		cd "$2"; CGO_ENABLED=0 go build -trimpath -buildvcs=false -o "$3" ./cmd/corrald ./cmd/corralctl ./cmd/corral-shim`,
		"bash", commit, source, target)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, strings.TrimSpace(string(output)))
	}
	return nil
}

// CopyProgram copies a program to a file that it creates or overwrites.
func CopyProgram(from, to string) error {
	program, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, program, 0o755)
	}
	if err == nil {
		err = os.Chmod(to, 0o755) // whatever the umask
	}
	return err
}
