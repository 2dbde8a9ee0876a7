package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/internal/testbed"
)

// hostileProgram is the agent in these tests; it attacks a socket that is not its own. Its
// arguments are a verb, the socket's path, and a file to which it writes the results.
const hostileProgram = `
import os, socket, sys, time
verb, path, out = sys.argv[1:]

def report(line):
    with open(out, "a") as f:
        f.write(line + "\n")

def connect():
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    while not os.path.exists(path):  # a shim creates its socket when the agent has started
        time.sleep(0.01)
    s.connect(path)
    return s

if verb == "replace":  # listens in the place of a shim, and writes down what it is sent
    os.rename(path, path + ".away")
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.bind(path)
    s.listen(8)
    report("listens")
    while True:
        c, _ = s.accept()
        report("accepted")
        while (got := c.recv(1 << 15)):
            report("got " + repr(got))
        c.close()
elif verb == "occupy":  # holds as many connections as it gets
    held = []
    for n in range(32):
        s = connect()
        s.setblocking(False)
        held.append(s)
    report("connected")
    while True:
        for n, s in enumerate(held):
            try:
                if s.recv(1 << 15) == b"":
                    held[n] = connect()
                    held[n].setblocking(False)
            except OSError:
                pass
        sys.stdin.readline()  # each line has it look again
        report("again")
elif verb == "type":  # types into a terminal
    s = connect()
    try:
        s.send(b"tq\x01\x07d\x07hunter2")
        while (got := s.recv(1 << 15)):
            if got[0:1] == b"d":
                report(repr(got))
        report("disconnected")
    except OSError as e:
        report("disconnected")
    sys.stdin.readline()
`

// createHostile creates a session whose agent runs hostileProgram, and waits until the agent has
// written this line.
func (d *corrald) createHostile(t *testing.T, id, verb, socket, line string) (s *testSession, out string) {
	t.Helper()
	out = filepath.Join(d.dir, id+".out")
	s = d.create(t, id, spec{"Command": []string{"python3", "-c", hostileProgram, verb, socket, out}})
	waitFile(t, out, line)
	return s, out
}

// countLogged returns how many log records of the daemon contain text.
func (d *corrald) countLogged(text string) int { return strings.Count(d.log.String(), text) }

const anotherListens = "another process listens on the socket of a session's shim"

// TestSend_NeverReachesAnotherProcess checks that an agent that has replaced another session's
// socket by its own receives nothing that is sent to that session. The sender gets an error, and
// the shim creates its socket again.
func TestSend_NeverReachesAnotherProcess(t *testing.T) {
	d := startDaemon(t)
	victim, got := d.readerSession(t, "victim", "stty -echo")
	socket := filepath.Join(d.runtimeDir("victim"), "shim.sock")
	_, out := d.createHostile(t, "thief", "replace", socket, "listens")
	err := victim.do("SendInput", "my token is hunter2", dbusapi.InputEnter)
	assertRefused(t, err, dbusapi.InvalidState, `cannot send to session "victim"`, "is not the session's shim",
		"app-corral-command-thief.scope")
	testbed.Poll(t, "the shim listens again", func() bool {
		return victim.do("SendInput", "to the right one", dbusapi.InputEnter) == nil
	})
	d.waitProblems(t, 0)
	waitContent(t, got, "to the right one\n")
	assert.NotContains(t, readFile(t, out), "got")
	assert.Equal(t, 1, d.countLogged(anotherListens))
	victim.waitState("running")
}

// TestAdoption_IgnoresImpostorShim checks that the daemon connects to the genuine shim, even if
// another process listens on its socket when the daemon starts.
func TestAdoption_IgnoresImpostorShim(t *testing.T) {
	d := startDaemon(t)
	victim, got := d.readerSession(t, "victim", "stty -echo")
	socket := filepath.Join(d.runtimeDir("victim"), "shim.sock")
	_, out := d.createHostile(t, "thief", "replace", socket, "listens")
	d.kill(syscall.SIGKILL)
	d.launch()
	victim.wait("reporting", func(p properties) bool {
		return p.text("State") == "running" && p.text("Activity") == "idle"
	})
	d.waitProblems(t, 0)
	victim.must("SendInput", "as before", dbusapi.InputEnter)
	waitContent(t, got, "as before\n")
	assert.NotContains(t, readFile(t, out), "got")
	assert.Equal(t, 1, d.countLogged(anotherListens))
}

// TestShim_KeepsASlotForTheDaemon checks that neither another session's agent nor its own can take
// all connections of a shim.
func TestShim_KeepsASlotForTheDaemon(t *testing.T) {
	d := startDaemon(t)
	victim, got := d.readerSession(t, "victim", "stty -echo")
	socket := filepath.Join(d.runtimeDir("victim"), "shim.sock")
	d.createHostile(t, "other", "occupy", socket, "connected")
	own, _ := d.createHostile(t, "own", "occupy", filepath.Join(d.runtimeDir("own"), "shim.sock"), "connected")
	victim.must("SendInput", "one", dbusapi.InputEnter)
	own.must("SendInput", "", dbusapi.InputEnter)
	d.kill(syscall.SIGKILL)
	d.launch()
	for _, s := range []*testSession{victim, own} {
		s.wait("reporting", func(p properties) bool { return p.text("State") == "running" && p.text("Activity") == "idle" })
	}
	victim.must("SendInput", "two", dbusapi.InputEnter)
	waitContent(t, got, "one\ntwo\n")
	own.must("SendInput", "", dbusapi.InputEnter)
	waitFile(t, filepath.Join(d.dir, "own.out"), "again\n")
}

// TestShim_AcceptsInputOnlyFromTheDaemon checks that a shim disconnects another session's agent
// that sends text, and replies to its own agent with an error.
func TestShim_AcceptsInputOnlyFromTheDaemon(t *testing.T) {
	d := startDaemon(t)
	victim, got := d.readerSession(t, "victim", "stty -echo")
	_, out := d.createHostile(t, "other", "type", filepath.Join(d.runtimeDir("victim"), "shim.sock"), "disconnected")
	assert.Equal(t, "disconnected\n", readFile(t, out))
	d.createHostile(t, "own", "type", filepath.Join(d.runtimeDir("own"), "shim.sock"), "only corrald may send text")
	victim.must("SendInput", "from a person", dbusapi.InputEnter)
	waitContent(t, got, "from a person\n")
}

// runID returns the id of the session's run from its record, as every process that can read the
// record could.
func (s *testSession) runID() string {
	s.t.Helper()
	var envelope struct {
		Session struct {
			Run struct {
				ID string `json:"id"`
			} `json:"run"`
		} `json:"session"`
	}
	require.NoError(s.t, json.Unmarshal([]byte(readFile(s.t, filepath.Join(s.stateDir(s.id), "session.json"))), &envelope))
	require.NotEmpty(s.t, envelope.Session.Run.ID)
	return envelope.Session.Run.ID
}

// forgeExit writes an exit record for a session's agent.
func (s *testSession) forgeExit(dir string, code int) {
	s.t.Helper()
	require.NoError(s.t, exitstatus.Write(dir, exitstatus.Status{
		RunID: s.runID(), Code: exitstatus.Exited, Value: code, Started: time.Now().AddDate(-1, 0, 0),
		Exited: time.Now().AddDate(1, 0, 0),
	}))
}

// TestExit_ForgedRecordIsIgnored forges exit records of a running agent, in both directories,
// before and after a daemon restart. The agent's actual exit is still reported.
func TestExit_ForgedRecordIsIgnored(t *testing.T) {
	d := startDaemon(t)
	s := d.create(t, "shop", d.witness("shop"))
	pid := d.waitAgents(t, "shop", 1)[0]
	s.waitState("running")
	for n, dir := range []string{d.stateDir("shop"), d.runtimeDir("shop")} {
		s.forgeExit(dir, n)
		problems := d.waitProblems(t, n+1)
		assert.Equal(t, "shop", problems[n].Session)
		assert.Contains(t, problems[n].Text, "the record is ignored")
		s.assertOutcome(outcome{"running", "", 0, 0, "", "active"})
		assert.Equal(t, pid, s.properties().number("MainPID"))
	}
	d.kill(syscall.SIGKILL)
	d.launch()
	s.assertOutcome(outcome{"running", "", 0, 0, "", "active"})
	d.waitProblems(t, 2)
	require.NoError(t, os.Remove(filepath.Join(d.runtimeDir("shop"), "exit_status")))
	d.waitProblems(t, 1)
	s.must("Kill", "agent", int32(syscall.SIGUSR1))
	s.waitOutcome(outcome{"failed", "exit-code", 1, 9, "command exited with code 9", "error"})
	d.waitProblems(t, 0)
	testbed.WaitExit(t, pid)
}
