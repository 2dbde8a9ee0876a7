package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/testbed"
)

// permissionAgent is an agent that asks for permission again and again, and continues at a random
// moment, answered or not. After each question and after each end of one it sends the query of the
// Program Status Protocol, whose reply arrives in the same stream as keys: keys that follow the
// reply sent for an end were written by a shim that had already read that end. When it exits, it
// writes how many keys arrived while it asked, and how many arrived too late.
const permissionAgent = `import os, random, select, sys, time, tty
tty.setraw(0)
answer, rest, seen, right, late = b'\x1b]7501;?\x1b\\', b'', 0, 0, 0
def say(status): os.write(1, b'\x1b]7501;' + status + b'\x1b\\' + answer)
def read(until, end):
    global rest, seen, right, late
    while seen < until:
        if not select.select([0], [], [], max(0, end - time.monotonic()))[0]: return
        rest += os.read(0, 4096)
        while rest:
            if rest.startswith(answer): seen, rest = seen + 1, rest[len(answer):]
            elif answer.startswith(rest): break
            elif seen % 2: right, rest = right + 1, rest[1:]
            else: late, rest = late + 1, rest[1:]
n = 0
while not os.path.exists(sys.argv[1]):
    say(b'state=blocked:kind=permission')
    read(2 * n + 1, time.monotonic() + 1000)
    read(2 * n + 2, time.monotonic() + random.random() / 10)
    say(b'state=working')
    read(2 * n + 2, time.monotonic() + 1000)
    n += 1
open(sys.argv[2], 'w').write('%d %d' % (right, late))
`

// TestApprove_RacesTheEndOfTheQuestion calls Approve and Deny over the bus more than a thousand
// times: no key is pressed for a call that was refused, and each key that is pressed answers a
// question.
func TestApprove_RacesTheEndOfTheQuestion(t *testing.T) {
	const sessions, times = 4, 1000
	d := startDaemon(t)
	d.write("asks.py", permissionAgent)
	var wait sync.WaitGroup
	var tried, pressed, right atomic.Int64
	for i := range sessions {
		id := fmt.Sprint("asks", i)
		file := d.dir + "/" + id
		d.defineAgent(t, id, fmt.Sprintf("Command=python3 %s/asks.py %s/enough %s", d.dir, d.dir, file),
			"ApproveKeys=y", "DenyKeys=n")
		require.NoError(t, d.createAs(id, id))
		s := &testSession{d, t, id}
		wait.Go(func() {
			for short := ""; short != dbusapi.InvalidState; {
				err := s.do([]string{"Approve", "Deny"}[rand.N(2)])
				if short = dbusapi.ShortErrorName(err); err == nil {
					pressed.Add(1)
				} else if short != dbusapi.InvalidState {
					assert.Equal(t, dbusapi.NotWaiting, short, "%v", err)
				}
				if err != nil && strings.HasSuffix(err.Error(), "answered just now") {
					continue // the question was already answered, so this call raced nothing
				}
				if tried.Add(1) == times {
					d.write("enough", "")
				}
			}
			var counted [2]int
			n, _ := fmt.Sscan(string(testbed.WaitFile(t, file, func(b []byte) bool {
				return strings.Contains(string(b), " ")
			})), &counted[0], &counted[1])
			assert.Equal(t, 2, n)
			assert.Zero(t, counted[1], "%s got a key after its question had ended", id)
			right.Add(int64(counted[0]))
		})
	}
	wait.Wait()
	t.Logf("of %d answers %d were pressed", tried.Load(), pressed.Load())
	assert.Equal(t, right.Load(), pressed.Load())
	assert.NotZero(t, pressed.Load())
}

// TestApprove_IsRefusedToAgents checks that an agent can approve neither its own requests nor those
// of other sessions, and neither can a process that it starts elsewhere, as long as that descends
// from the agent.
func TestApprove_IsRefusedToAgents(t *testing.T) {
	d := startDaemon(t)
	d.defineAgent(t, "asking",
		`Command=sh -c "stty raw -echo; printf '\\033]7501;state=blocked:kind=permission\\033\\\\'; head -c 1 >%h/key; exec sleep 1000"`, "ApproveKeys=y")
	require.NoError(t, d.createAs("asking", "shop"))
	s := &testSession{d, t, "shop"}
	s.wait("asking", func(p properties) bool { return p.text("Activity") == "waiting" })
	call := "gdbus call -e -d " + dbusapi.BusName + " -o " + string(dbusapi.SessionPath("shop")) + " -m " +
		dbusapi.SessionInterface + ".Approve"
	sly := d.run(t, "sly", call+" 2>"+d.dir+"/direct; systemd-run --user --scope -q "+call+" 2>"+d.dir+"/scope; true")
	sly.waitState("completed")
	for _, file := range []string{"direct", "scope"} {
		assert.Contains(t, readFile(t, d.dir+"/"+file), `an agent cannot approve or deny anything`, file)
	}
	assert.Equal(t, "waiting", s.properties().text("Activity"))
	s.must("Approve")
	waitFile(t, d.dir+"/key", "y")
	assertRefused(t, s.do("Deny"), dbusapi.NotSupported, "DenyKeys=")
}
