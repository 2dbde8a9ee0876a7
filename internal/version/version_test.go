package version

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestVersion_FromBuildInfo(t *testing.T) {
	commit := debug.BuildSetting{Key: "vcs.revision", Value: "0123456789abcdef0123456789abcdef01234567"}
	for name, c := range map[string]struct {
		info debug.BuildInfo
		want string
	}{
		"nothing is known": {debug.BuildInfo{}, "0.0.0+unknown"},
		"a module version": {debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}, "1.2.3"},
		"a clean checkout": {debug.BuildInfo{Main: debug.Module{Version: "(devel)"},
			Settings: []debug.BuildSetting{commit}}, "0.0.0+git0123456789ab"},
		"a checkout that was edited": {debug.BuildInfo{Settings: []debug.BuildSetting{commit,
			{Key: "vcs.modified", Value: "true"}}}, "0.0.0+git0123456789ab.dirty"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, fromBuildInfo(&c.info))
		})
	}
}

func TestVersion_IsNeverEmpty(t *testing.T) {
	assert.NotEmpty(t, Version)
}
