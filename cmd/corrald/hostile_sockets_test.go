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

// hostileProgram is what agents do in these tests to sockets that are not theirs: VERB, a socket's
// path, and a file that tells what has come of it.
const hostileProgram = `
import os, socket, sys
verb, path, out = sys.argv[1:]

def tell(line):
    with open(out, "a") as f:
        f.write(line + "\n")

def connect():
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.connect(path)
    return s

if verb == "replace":  # listens in the place of a shim, and writes down what it is sent
    os.rename(path, path + ".away")
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.bind(path)
    s.listen(8)
    tell("listens")
    while True:
        c, _ = s.accept()
        tell("accepted")
        while (got := c.recv(1 << 15)):
            tell("got " + repr(got))
        c.close()
elif verb == "occupy":  # holds as many connections as it gets
    held = []
    for n in range(32):
        s = connect()
        s.setblocking(False)
        held.append(s)
    tell("connected")
    while True:
        for n, s in enumerate(held):
            try:
                if s.recv(1 << 15) == b"":
                    held[n] = connect()
                    held[n].setblocking(False)
            except OSError:
                pass
        sys.stdin.readline()  # each line has it look again
        tell("again")
elif verb == "type":  # types into a terminal
    s = connect()
    try:
        s.send(b"tq\x01\x07d\x07hunter2")
        while (got := s.recv(1 << 15)):
            if got[0:1] == b"d":
                tell(repr(got))
        tell("disconnected")
    except OSError as e:
        tell("disconnected")
    sys.stdin.readline()
`

// hostile creates a session whose agent does such a thing, and waits until it has written a line
// about that.
func (d *corrald) hostile(t *testing.T, id, verb, socket, line string) (s *subject, out string) {
	t.Helper()
	out = filepath.Join(d.dir, id+".out")
	s = d.create(t, id, spec{"Command": []string{"python3", "-c", hostileProgram, verb, socket, out}})
	waitFile(t, out, line)
	return s, out
}

// logged returns how many records with this text the daemon has logged.
func (d *corrald) logged(text string) int { return strings.Count(d.log.String(), text) }

const anotherListens = "another process listens on the socket of a session's shim"

// TestSend_NeverReachesAnotherProcess: an agent that has put a socket of its own in the place of
// another session's gets nothing of what is sent there. Who sends is told, and the shim makes its
// socket anew.
func TestSend_NeverReachesAnotherProcess(t *testing.T) {
	d := startDaemon(t)
	victim, got := d.takes(t, "victim", "stty -echo")
	socket := filepath.Join(d.runtimeDir("victim"), "shim.sock")
	_, out := d.hostile(t, "thief", "replace", socket, "listens")
	err := victim.do("SendInput", "my token is hunter2", dbusapi.InputEnter)
	refused(t, err, dbusapi.InvalidState, `cannot send to session "victim"`, "is not the session's shim", "app-corral-command-thief.scope")
	testbed.Poll(t, "the shim listens again", func() bool {
		return victim.do("SendInput", "to the right one", dbusapi.InputEnter) == nil
	})
	d.hasProblems(t, 0)
	waitContent(t, got, "to the right one\n")
	assert.NotContains(t, readFile(t, out), "got")
	assert.Equal(t, 1, d.logged(anotherListens))
	victim.become("running")
}

// TestAdoption_IgnoresImpostorShim, also where another process listens in its place when the daemon
// comes.
func TestAdoption_IgnoresImpostorShim(t *testing.T) {
	d := startDaemon(t)
	victim, got := d.takes(t, "victim", "stty -echo")
	socket := filepath.Join(d.runtimeDir("victim"), "shim.sock")
	_, out := d.hostile(t, "thief", "replace", socket, "listens")
	d.kill(syscall.SIGKILL)
	d.launch()
	victim.wait("heard", func(f facts) bool { return f.text("State") == "running" && f.text("Activity") == "idle" })
	d.hasProblems(t, 0)
	victim.must("SendInput", "as before", dbusapi.InputEnter)
	waitContent(t, got, "as before\n")
	assert.NotContains(t, readFile(t, out), "got")
	assert.Equal(t, 1, d.logged(anotherListens))
}

// TestShim_KeepsASlotForTheDaemon: neither another session's agent nor its own can take all
// connections of a shim.
func TestShim_KeepsASlotForTheDaemon(t *testing.T) {
	d := startDaemon(t)
	victim, got := d.takes(t, "victim", "stty -echo")
	socket := filepath.Join(d.runtimeDir("victim"), "shim.sock")
	d.hostile(t, "other", "occupy", socket, "connected")
	own, _ := d.hostile(t, "own", "occupy", filepath.Join(d.runtimeDir("own"), "shim.sock"), "connected")
	victim.must("SendInput", "one", dbusapi.InputEnter)
	own.must("SendInput", "", dbusapi.InputEnter)
	d.kill(syscall.SIGKILL)
	d.launch()
	for _, s := range []*subject{victim, own} {
		s.wait("heard", func(f facts) bool { return f.text("State") == "running" && f.text("Activity") == "idle" })
	}
	victim.must("SendInput", "two", dbusapi.InputEnter)
	waitContent(t, got, "one\ntwo\n")
	own.must("SendInput", "", dbusapi.InputEnter)
	waitFile(t, filepath.Join(d.dir, "own.out"), "again\n")
}

// TestShim_AcceptsInputOnlyFromTheDaemon: another session's agent is disconnected, its own is
// answered.
func TestShim_AcceptsInputOnlyFromTheDaemon(t *testing.T) {
	d := startDaemon(t)
	victim, got := d.takes(t, "victim", "stty -echo")
	_, out := d.hostile(t, "other", "type", filepath.Join(d.runtimeDir("victim"), "shim.sock"), "disconnected")
	assert.Equal(t, "disconnected\n", readFile(t, out))
	d.hostile(t, "own", "type", filepath.Join(d.runtimeDir("own"), "shim.sock"), "only corrald may send text")
	victim.must("SendInput", "from a person", dbusapi.InputEnter)
	waitContent(t, got, "from a person\n")
}

// runID returns the id of the session's run, as anybody who can read its record finds it.
func (s *subject) runID() string {
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

// forge writes a record of the exit of a session's agent.
func (s *subject) forge(dir string, code int) {
	s.t.Helper()
	pending, err := exitstatus.Prepare(dir)
	require.NoError(s.t, err)
	require.NoError(s.t, pending.Write(exitstatus.Status{
		RunID: s.runID(), Code: exitstatus.Exited, Value: code, Started: time.Now().AddDate(-1, 0, 0), Exited: time.Now().AddDate(1, 0, 0),
	}))
}

// TestExit_ForgedRecordIsIgnored, in either place, nor by the next daemon. Its true exit
// is.
func TestExit_ForgedRecordIsIgnored(t *testing.T) {
	d := startDaemon(t)
	s := d.create(t, "shop", d.witness("shop"))
	pid := d.agents(t, "shop", 1)[0]
	s.become("running")
	for n, dir := range []string{d.stateDir("shop"), d.runtimeDir("shop")} {
		s.forge(dir, n)
		told := d.hasProblems(t, n+1)
		assert.Equal(t, "shop", told[n].Session)
		assert.Contains(t, told[n].Text, "the record is ignored")
		s.is(outcome{"running", "", 0, 0, "", "active"})
		assert.Equal(t, pid, s.facts().number("MainPID"))
	}
	d.kill(syscall.SIGKILL)
	d.launch()
	s.is(outcome{"running", "", 0, 0, "", "active"})
	d.hasProblems(t, 2)
	require.NoError(t, os.Remove(filepath.Join(d.runtimeDir("shop"), "exit_status")))
	d.hasProblems(t, 1)
	s.must("Kill", "agent", int32(syscall.SIGUSR1))
	s.ends(outcome{"failed", "exit-code", 1, 9, "command exited with code 9", "error"})
	d.hasProblems(t, 0)
	testbed.WaitExit(t, pid)
}
