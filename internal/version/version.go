// Package version provides the version number that all Corral programs report.
package version

import (
	"runtime/debug"
	"strings"
)

// unknown is the value of Version if neither the linker nor Go's build information provides one.
const unknown = "0.0.0+unknown"

// Version is the program's version. A release sets it while linking:
//
//	go build -ldflags "-X github.com/corrald/corral/internal/version.Version=1.2.3"
//
// Otherwise it is derived from the module version and the commit that the Go toolchain recorded.
var Version = unknown

func init() {
	if Version != unknown {
		return
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		Version = fromBuildInfo(info)
	}
}

// fromBuildInfo returns the module's version if it has one ("go install …@v1.2.3"), else 0.0.0 with
// the commit, and ".dirty" if the source tree had uncommitted changes.
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
