// Package version is the version that every program of Corral tells.
package version

import (
	"runtime/debug"
	"strings"
)

// unknown is what Version says where neither the build nor Go's build information tells more.
const unknown = "0.0.0+unknown"

// Version is the program's version. A release sets it while linking:
//
//	go build -ldflags "-X github.com/corrald/corral/internal/version.Version=1.2.3"
//
// Otherwise it is made from what the Go toolchain recorded of the module and its commit.
var Version = unknown

func init() {
	if Version != unknown {
		return
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		Version = fromBuildInfo(info)
	}
}

// fromBuildInfo gives the module's version where it has one ("go install …@v1.2.3"), else 0.0.0
// with the commit, and ".dirty" where the tree was not as committed.
func fromBuildInfo(info *debug.BuildInfo) string {
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return strings.TrimPrefix(v, "v")
	}
	var revision string
	var modified bool
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value
		case "vcs.modified":
			modified = s.Value == "true"
		}
	}
	if revision == "" {
		return unknown
	}
	v := "0.0.0+git" + revision[:min(len(revision), 12)]
	if modified {
		v += ".dirty"
	}
	return v
}
