package conversations

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/proc"
)

// TestDetectOpen_OfThisProcess uses this process as the agent.
func TestDetectOpen_OfThisProcess(t *testing.T) {
	group, err := proc.Cgroup(os.Getpid())
	require.NoError(t, err)
	dir := t.TempDir()
	open := func(name, text string, written time.Time) *os.File {
		path := filepath.Join(dir, name)
		write(t, dir, name, text)
		require.NoError(t, os.Chtimes(path, time.Time{}, written))
		f, err := os.Open(path)
		require.NoError(t, err)
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	pattern := regexp.MustCompile(regexp.QuoteMeta(dir) + `/(.+)\.jsonl$`)
	detect := func(content *regexp.Regexp, known string) string {
		return Detector{}.DetectOpen(group, os.Getpid(), OpenFile{pattern, content, known})
	}
	assert.Empty(t, detect(nil, "b"), "it has no such file")

	child := exec.CommandContext(t.Context(), "sleep", "infinity")
	inherited := open("d.jsonl", "", time.Unix(1, 0))
	child.ExtraFiles = []*os.File{inherited}
	require.NoError(t, child.Start())
	require.NoError(t, inherited.Close())
	defer func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	}()
	assert.Equal(t, "d", detect(nil, ""), "a descendant holds the file")

	open("not a valid id.jsonl", "user", time.Unix(9, 0))
	open("c.jsonl", "user", time.Unix(2, 0))
	open("b.jsonl", "user", time.Unix(3, 0))
	open("a.jsonl", "helper", time.Unix(4, 0))
	assert.Equal(t, "a", detect(nil, ""), "the first by path, not that of a descendant")
	assert.Equal(t, "c", detect(nil, "c"), "the known one")
	assert.Equal(t, "a", detect(nil, "d"), "the known one is not among them")
	assert.Equal(t, "b", detect(regexp.MustCompile("user"), "c"), "written last of those with the content")
	assert.Equal(t, "c", detect(regexp.MustCompile("nothing"), "c"), "none has the content")

	assert.Empty(t, Detector{}.DetectOpen("", os.Getpid(), OpenFile{Path: pattern}), "a run without a control group")
}

func TestDistance_CountsGenerations(t *testing.T) {
	parents := map[int]int{10: 1, 11: 10, 12: 11, 20: 1, 30: 31, 31: 30}
	for pid, want := range map[int]int{10: 0, 11: 1, 12: 2, 20: -1, 30: -1, 99: -1} {
		assert.Equal(t, want, distance(parents, pid, 10), pid)
	}
}
