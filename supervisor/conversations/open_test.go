package conversations

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/config"
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
		return Detector{}.DetectOpen(group, os.Getpid(), OpenFile{Path: pattern, Content: content, Known: known}).ID
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

// TestReadLimit uses the records of Codex 0.169, shortened.
func TestReadLimit(t *testing.T) {
	agents, _ := config.LoadAgents([]string{"../.."})
	pattern := agents["codex"].LimitRecord
	require.NotNil(t, pattern)
	const (
		count = `{"ordinal":29,"payload":{"type":"token_count","rate_limits":{"primary":{"used_percent":100.0,` +
			`"window_minutes":300,"resets_at":1795678511},"secondary":{"used_percent":40.0,"resets_at":1796078511}}}}` + "\n"
		complete = `{"ordinal":30,"payload":{"type":"task_complete","error":{"message":"You\u2019ve hit your usage limit%s.",` +
			`"codex_error_info":"usage_limit_exceeded"},"started_at":1795671023}}` + "\n"
		failed = `{"ordinal":30,"payload":{"type":"task_complete","error":{"message":"overloaded","codex_error_info":` +
			`{"http_connection_failed":{"http_status_code":529}}}}}` + "\n"
		message = "You’ve hit your usage limit."
		started = `{"ordinal":31,"payload":{"type":"task_started"}}` + "\n"
	)
	for name, row := range map[string]struct {
		text  string
		want  string // the message
		until time.Time
	}{
		"a limit":                {started + count + fmt.Sprintf(complete, ""), message, time.Unix(1795678511, 0)},
		"without a time":         {started + fmt.Sprintf(complete, ""), message, time.Time{}},
		"another turn has begun": {count + fmt.Sprintf(complete, "") + started, "", time.Time{}},
		"another failure":        {count + failed, "", time.Time{}},
		"an earlier limit":       {count + fmt.Sprintf(complete, "") + started + count + failed, "", time.Time{}},
		"a long file": {
			strings.Repeat(started, 5000) + count + fmt.Sprintf(complete, ""), message,
			time.Unix(1795678511, 0),
		},
		"empty": {},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "rollout.jsonl", row.text)
			limit := readLimit(filepath.Join(dir, "rollout.jsonl"), pattern)
			if row.want == "" {
				assert.Nil(t, limit)
				return
			}
			require.NotNil(t, limit)
			assert.Equal(t, row.want, limit.Message)
			assert.True(t, row.until.Equal(limit.Until), limit.Until)
		})
	}
	dated := t.TempDir()
	write(t, dated, "rollout.jsonl", fmt.Sprintf(complete, ", try again at Nov 29th, 2031 7:35 AM"))
	limit := readLimit(filepath.Join(dated, "rollout.jsonl"), pattern)
	require.NotNil(t, limit)
	assert.Equal(t, "2031-11-29 07:36", limit.Until.Local().Format("2006-01-02 15:04"), "the time in the text")
	assert.Nil(t, readLimit(filepath.Join(dated, "missing"), pattern))
	assert.Nil(t, readLimit(dated, pattern), "a directory")
}

func TestDistance_CountsGenerations(t *testing.T) {
	parents := map[int]int{10: 1, 11: 10, 12: 11, 20: 1, 30: 31, 31: 30}
	for pid, want := range map[int]int{10: 0, 11: 1, 12: 2, 20: -1, 30: -1, 99: -1} {
		assert.Equal(t, want, distance(parents, pid, 10), pid)
	}
}
