package proc

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLimits_AreTheLowestOutsideOfTheOtherGroup(t *testing.T) {
	root := t.TempDir()
	for file, text := range map[string]string{
		"memory.max": "1", // of the root, which limits everything
		"system.slice/slurmstepd.scope/job_7/memory.max":                         "4294967296",
		"system.slice/slurmstepd.scope/job_7/memory.high":                        "max",
		"system.slice/slurmstepd.scope/job_7/memory.swap.max":                    "0",
		"system.slice/slurmstepd.scope/job_7/cpu.max":                            "150000 100000",
		"system.slice/slurmstepd.scope/job_7/cpuset.cpus":                        "2-5",
		"system.slice/slurmstepd.scope/job_7/step_batch/memory.max":              "8589934592",
		"system.slice/slurmstepd.scope/job_7/step_batch/cpu.max":                 "max 100000",
		"system.slice/slurmstepd.scope/job_7/step_batch/cpuset.cpus":             "",
		"system.slice/slurmstepd.scope/job_7/step_batch/cpuset.cpus.effective":   "2-3",
		"user.slice/user-7.slice/memory.max":                                     "2147483648",
		"user.slice/user-7.slice/session-1.scope/memory.max":                     "max",
		"user.slice/user-7.slice/session-1.scope/cpuset.cpus":                    "",
		"user.slice/user-7.slice/user@7.service/app.slice/shell.scope/cpu.max":   "20000 100000",
		"user.slice/user-7.slice/user@7.service/app.slice/shell.scope/junk.file": "x",
	} {
		path := filepath.Join(root, file)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text+"\n"), 0o600))
	}
	const manager, job = "/user.slice/user-7.slice/user@7.service", "/system.slice/slurmstepd.scope/job_7"
	for name, row := range map[string]struct {
		group, other string
		want         []string
	}{
		"a job": {job + "/step_batch", manager,
			[]string{"MemoryMax=4294967296", "MemorySwapMax=0", "CPUQuota=150%", "AllowedCPUs=2-3"}},
		"a login, limited like the manager": {"/user.slice/user-7.slice/session-1.scope", manager, nil},
		"the same, compared with another user's": {"/user.slice/user-7.slice/session-1.scope", "/user.slice/user-8.slice",
			[]string{"MemoryMax=2147483648"}},
		"a shell of the manager with a limit": {manager + "/app.slice/shell.scope", manager, []string{"CPUQuota=20%"}},
		"the manager itself":                  {manager, manager, nil},
		"a group whose name begins with the other's": {job, strings.TrimSuffix(job, "_7"),
			[]string{"MemoryMax=4294967296", "MemorySwapMax=0", "CPUQuota=150%"}},
		"a group that was removed":                    {"/system.slice/gone.service", manager, nil},
		"a group outside of this process's namespace": {"/../b.scope", manager, nil},
		"the root":     {"/", manager, nil},
		"an empty one": {"", manager, nil},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, row.want, limitsBelow(root, row.group, row.other)) })
	}
}
