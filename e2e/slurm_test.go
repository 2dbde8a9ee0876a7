//go:build e2e && slurm

package e2e

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed"
	"github.com/corrald/corral/internal/testbed/machine"
)

// slurmConf is the configuration of a small cluster. It has no control groups: the kernel of the
// machines has no controllers for them.
const slurmConf = `ClusterName=test
SlurmctldHost=login
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
AuthInfo=cred_expire=5
JobRequeue=1
ReturnToService=2
SlurmdTimeout=10
SlurmdParameters=config_overrides
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmUser=slurm
Prolog=/etc/slurm/corral-prolog
PrologFlags=Alloc
Epilog=/etc/slurm/corral-epilog
NodeName=node[1-2] CPUs=2 RealMemory=3000
PartitionName=agents Nodes=ALL Default=YES
`

// scribe is an agent with a conversation, in which it notes the host of each run.
const scribe = `#!/bin/bash
talk=~/talks/$2
mkdir -p ~/talks
[ "$1" != --resume ] || echo "continues $2, which was on $(tail -n 1 "$talk")"
hostname >>"$talk"
echo "works on $(hostname)"
trap 'echo saved; exit 0' TERM
while [ ! -e finish ]; do sleep 0.1; done
exit 5
`

const scribeAgent = `[Agent]
Command=%h/scribe --new %U
ResumeCommand=%h/scribe --resume %U
ResumeCondition=%h/talks/%U
IdSource=preset
`

// cluster is a Slurm cluster: the host "login", where slurmctld runs and users log in, and two
// nodes. Home directories are on a file server.
type cluster struct {
	*desk // ann on the login host
	nodes map[string]*desk
}

// TestSlurm runs sessions as jobs of a real Slurm with the files in contrib/slurm.
func TestSlurm(t *testing.T) {
	c := newCluster(t)
	c.do("mkdir", "-p", ".config/corral/agents", "work")
	put(c.Machine, "/srv/ann/scribe", scribe, "755")
	put(c.Machine, "/srv/ann/.config/corral/agents/scribe.agent", scribeAgent, "644")

	c.testTenJobs()
	c.testLimits()
	c.testCancel()
	c.testSignal()
	c.testKilled()
	c.testDrain()
	c.testFailure()
}

func newCluster(t *testing.T) *cluster {
	network := machine.NewNetwork(t)
	root := machine.DebianWithApt(t, "trixie", "slurm-wlm", "openssh-server", "openssh-client")
	files := t.TempDir()
	require.NoError(t, os.Chmod(files, 0o755))
	boot := func(name string) *desk {
		m := machine.Boot(t, machine.Options{Root: root, Network: network, Name: name, Share: files})
		m.Install(installed(t))
		m.Run("useradd", "--create-home", "--home-dir", "/srv/ann", "--shell", "/bin/bash", "ann")
		for file, mode := range map[string]string{
			"corral-prolog": "755 /etc/slurm", "corral-epilog": "755 /etc/slurm", "corral-job": "755 /usr/local/bin",
			"shared-home.conf": "644 /etc/systemd/user/corrald.service.d",
		} {
			mode, dir, _ := strings.Cut(mode, " ")
			content, err := os.ReadFile("../contrib/slurm/" + file)
			require.NoError(t, err)
			put(m, dir+"/"+file, string(content), mode)
		}
		put(m, "/etc/slurm/slurm.conf", slurmConf, "644")
		put(m, "/etc/slurm/cgroup.conf", "CgroupPlugin=disabled\n", "644")
		m.Run("sh", "-ec", `install -d -o slurm /var/lib/slurm/slurmctld /var/lib/slurm/slurmd /var/log/slurm
			systemctl add-wants machine.target munge.service; systemctl start munge.service`)
		return &desk{m, t, "ann"}
	}
	c := &cluster{desk: boot("login"), nodes: map[string]*desk{}}
	c.User("ann")
	for _, name := range []string{"node1", "node2"} {
		node := boot(name)
		c.nodes[name] = node
		node.Run("sh", "-ec", "systemctl add-wants machine.target slurmd.service; systemctl start slurmd.service")
	}
	c.Run("sh", "-ec", "systemctl add-wants machine.target slurmctld.service; systemctl start slurmctld.service")
	authorize(c.desk, c.nodes["node1"], c.nodes["node2"])
	c.untilLines("idle", "sinfo", "-h", "-N", "-o", "%T")
	return c
}

// put creates a file on a machine.
func put(m *machine.Machine, path, content, mode string) {
	cmd := m.Command("root", "sh", "-ec", `mkdir -p "$(dirname "$1")"; cat >"$1"; chmod "$2" "$1"`, "sh", path, mode)
	cmd.Stdin = strings.NewReader(content)
	if out, err := cmd.CombinedOutput(); err != nil {
		panic(fmt.Sprintf("%v\n%s", err, out))
	}
}

// untilLines waits until every line that a command prints is the given one.
func (c *cluster) untilLines(line, command string, args ...string) {
	c.t.Helper()
	out := ""
	testbed.Poll(c.t, fmt.Sprintf("%s %q prints %q", command, args, line), func() bool {
		out, _ = c.try(append([]string{command}, args...)...)
		lines := strings.Split(out, "\n")
		return !slices.ContainsFunc(lines, func(each string) bool { return each != line })
	})
}

// submit submits a job and returns its number.
func (c *cluster) submit(args ...string) string {
	c.t.Helper()
	return c.do(append([]string{"sbatch", "--parsable", "--chdir=/srv/ann/work"}, args...)...)
}

// job returns a value that scontrol shows of a job.
func (c *cluster) job(id, name string) string {
	c.t.Helper()
	out := c.do("scontrol", "show", "job", id)
	match := regexp.MustCompile(`\b` + name + `=(\S+)`).FindStringSubmatch(out)
	require.NotNil(c.t, match, out)
	return match[1]
}

func (c *cluster) output(id string) string {
	c.t.Helper()
	return c.do("cat", "work/slurm-"+id+".out")
}

func (c *cluster) untilState(id, state string) {
	c.t.Helper()
	testbed.Poll(c.t, "job "+id+" is "+state+"\n", func() bool { return c.job(id, "JobState") == state })
}

func (c *cluster) untilPrinted(id, text string) {
	c.t.Helper()
	testbed.Poll(c.t, "job "+id+" prints "+text, func() bool {
		out, _ := c.try("cat", "work/slurm-"+id+".out")
		return strings.Contains(out, text)
	})
}

func (c *cluster) testTenJobs() {
	var jobs []string
	for n := range 10 {
		jobs = append(jobs, c.submit("--mem=200", "corral-job", "--", "sh", "-c",
			fmt.Sprintf("echo job %d in $PWD; sleep 2; exit %d", n, n)))
	}
	for n, id := range jobs {
		state, code := "FAILED", fmt.Sprintf("%d:0", n)
		if n == 0 {
			state = "COMPLETED"
		}
		c.untilState(id, state)
		assert.Equal(c.t, code, c.job(id, "ExitCode"))
		assert.Equal(c.t, fmt.Sprintf("job %d in /srv/ann/work", n), c.output(id))
		out, _ := c.try("corralctl", "-H", c.job(id, "NodeList"), "show", "-P", "ExecMainStatus", "slurm-"+id+"-0")
		assert.Equal(c.t, fmt.Sprint(n), out, "the session is on the node of the job")
	}
}

func (c *cluster) testLimits() {
	assert.Equal(c.t, "a step", c.do("srun", "--mem=200", "--chdir=/srv/ann/work", "corral-job", "--", "echo", "a step"))
	id := c.submit("--mem=500", "--cpus-per-task=2", "corral-job", "--", "sh", "-c",
		"systemctl --user --no-pager show -P CPUQuotaPerSecUSec -P MemoryMax app-corral-command-$CORRAL_SESSION.scope")
	c.untilState(id, "COMPLETED")
	assert.Equal(c.t, "2s\n524288000", c.output(id))
	id = c.submit("--mem=200", "corral-job", "--", "sh", "-c", "echo job $SLURM_JOB_ID, state ${XDG_STATE_HOME-as usual}")
	c.untilState(id, "COMPLETED")
	assert.Equal(c.t, "job "+id+", state as usual", c.output(id), "the environment is that of the job, not of corrald")
}

func (c *cluster) testCancel() {
	id := c.submit("--mem=200", "corral-job", "scribe")
	c.untilPrinted(id, "works on")
	node := c.job(id, "NodeList")
	session := "slurm-" + id + "-0"
	c.do("tmux", "-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24",
		"corralctl -H "+node+" attach "+session)
	testbed.Poll(c.t, "it is attached", func() bool {
		screen, _ := c.try("tmux", "capture-pane", "-p")
		return strings.Contains(screen, "works on "+node)
	})
	c.do("tmux", "kill-server")
	assert.Equal(c.t, session, c.do("corralctl", "-H", node, "list", "--no-legend", "--columns=id", "--label=slurm="+id))
	c.do("scancel", id)
	c.untilState(id, "CANCELLED")
	c.untilPrinted(id, "saved")
	assert.Equal(c.t, "stopped", c.do("sh", "-c", `corralctl -H "$1" is-active "$2" || :`, "sh", node, session))
}

// testSignal: a signal to the shell alone, as of sbatch --signal=B:TERM@60, stops the session as
// well.
func (c *cluster) testSignal() {
	id := c.submit("--mem=200", "corral-job", "scribe")
	c.untilPrinted(id, "works on")
	c.do("scancel", "--batch", "--signal=TERM", id)
	c.untilState(id, "FAILED")
	assert.Equal(c.t, "143:0", c.job(id, "ExitCode"))
	assert.Contains(c.t, c.output(id), "saved")
}

// testKilled: a job whose processes were killed, which ends no session, leaves none on the node.
func (c *cluster) testKilled() {
	id := c.submit("--mem=200", "--no-requeue", "corral-job", "scribe")
	c.untilPrinted(id, "works on")
	node := c.job(id, "NodeList")
	c.do("scancel", "--signal=KILL", "--full", id)
	c.untilEnded(id)
	testbed.Poll(c.t, "the session is stopped", func() bool {
		out, _ := c.try("corralctl", "-H", node, "is-active", "slurm-"+id+"-0")
		return out == "stopped"
	})
	c.untilLines("idle", "sinfo", "-h", "-N", "-o", "%T")
}

func (c *cluster) untilEnded(id string) {
	c.t.Helper()
	testbed.Poll(c.t, "job "+id+" has ended", func() bool {
		state := c.job(id, "JobState")
		return state != "RUNNING" && state != "COMPLETING"
	})
}

// testDrain drains the node of a job, moves the job to the other node, where its agent continues
// the conversation, and reboots the first one.
func (c *cluster) testDrain() {
	id := c.submit("--mem=200", "corral-job", "scribe")
	c.untilPrinted(id, "works on")
	from := c.job(id, "NodeList")
	to := map[string]string{"node1": "node2", "node2": "node1"}[from]
	c.Run("scontrol", "update", "NodeName="+from, "State=DRAIN", "Reason=reboot")
	c.Run("scontrol", "requeue", id)
	c.startNow(id)
	c.untilPrinted(id, "works on "+to)
	assert.Regexp(c.t, `(?s)works on `+from+`.*saved.*continues \S+, which was on `+from+`.*works on `+to, c.output(id))
	node := c.nodes[from]
	node.PowerOff()
	node.Boot()
	c.Run("scontrol", "update", "NodeName="+from, "State=RESUME")
	testbed.Poll(c.t, "the node is back", func() bool { return c.do("sinfo", "-h", "-n", from, "-o", "%T") == "idle" })
	c.do("touch", "work/finish")
	c.untilState(id, "FAILED")
	assert.Equal(c.t, "5:0", c.job(id, "ExitCode"))
	c.do("rm", "work/finish")
	again := c.submit("--mem=200", "--nodelist="+from, "corral-job", "--", "true")
	c.untilState(again, "COMPLETED")
}

// startNow waits until a job is queued again, and lets it start at once. Slurm would wait for up to
// two minutes.
func (c *cluster) startNow(id string) {
	c.t.Helper()
	// A failed node is noticed after SlurmdTimeout=, by pings that are as long apart.
	c.do("timeout", "120", "sh", "-c", `until scontrol show job "$1" | grep -q JobState=PENDING; do sleep 0.5; done`, "sh", id)
	testbed.Poll(c.t, "job "+id+" can be started", func() bool {
		cmd := c.Command("root", "scontrol", "update", "JobId="+id, "StartTime=now")
		return cmd.Run() == nil
	})
}

// testFailure: the job of a node that has lost its power continues on the other one.
func (c *cluster) testFailure() {
	id := c.submit("--mem=200", "corral-job", "scribe")
	c.untilPrinted(id, "works on")
	from := c.job(id, "NodeList")
	to := map[string]string{"node1": "node2", "node2": "node1"}[from]
	testbed.Poll(c.t, "the conversation is saved", func() bool {
		_, code := c.try("test", "-s", ".local/share/corral-slurm/"+id)
		return code == 0
	})
	c.nodes[from].Crash()
	c.startNow(id)
	c.untilPrinted(id, "works on "+to)
	assert.Regexp(c.t, `continues \S+, which was on `+from, c.output(id))
	c.do("touch", "work/finish")
	c.untilState(id, "FAILED")
	c.nodes[from].Boot()
	testbed.Poll(c.t, "the node is back", func() bool { return c.do("sinfo", "-h", "-n", from, "-o", "%T") == "idle" })
	out, _ := c.try("corralctl", "-H", from, "show", "-P", "State,Reason", "slurm-"+id+"-0")
	assert.Equal(c.t, "suspended\nthe machine went down", out)
}
