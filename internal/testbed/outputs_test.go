package testbed

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRedirectOutputs_CollectsFilesAfterTheRun(t *testing.T) {
	temporary, place := t.TempDir(), t.TempDir()
	args, collect := redirectOutputs([]string{"x.test", "-test.v", "-test.coverprofile=cover.out", "-test.trace=/dev/null",
		"-test.outputdir=" + place,
		"-test.run=coverprofile=x", "-test.memprofile="}, temporary)
	assert.Equal(t, []string{"x.test", "-test.v", "-test.coverprofile=" + temporary + "/coverprofile",
		"-test.trace=" + temporary + "/trace", "-test.outputdir=" + place,
		"-test.run=coverprofile=x", "-test.memprofile="}, args)
	require.NoError(t, os.WriteFile(filepath.Join(temporary, "coverprofile"), []byte("mode: set\n"), 0o600))
	require.NoError(t, collect(), "the trace was not written, which is fine")
	content, err := os.ReadFile(filepath.Join(place, "cover.out"))
	require.NoError(t, err)
	assert.Equal(t, "mode: set\n", string(content))
}
