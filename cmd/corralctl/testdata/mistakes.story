# Each mistake gets one line that names it, one hint if a command would help, and its own exit code.

$ corralctl lsit
corralctl: unknown verb "lsit"
hint: corralctl list
[exit 2]

# An agent starts mcp, and speaks its protocol.
$ script -qec 'corralctl mcp' /dev/null | tr -d '\r'
corralctl: mcp is started by an agent, not in a terminal
hint: man corralctl

# The notifications of this machine are shown by corrald.
$ corralctl notify
corralctl: notify shows the notifications of another machine: expected --host=HOST
hint: corralctl help notify
[exit 2]

# Two processes would show everything twice.
$ mkdir -p ~/state/corral/remote && flock ~/state/corral/remote/desk.json.lock corralctl -H desk notify
corralctl: the notifications of "desk" are shown already
hint: systemctl --user status 'corral-remote@*'
[exit 1]

# Names that other programs use for a verb are known, too.
$ corralctl ls; corralctl delete x; corralctl daemon-reload
corralctl: unknown verb "ls"
hint: corralctl list
corralctl: unknown verb "delete"
hint: corralctl rm
corralctl: unknown verb "daemon-reload"
hint: corralctl reload
[exit 2]

$ corralctl rm -f x
corralctl: cannot remove "x": no such session
[exit 4]

$ corralctl clean all
corralctl: clean takes no arguments
hint: corralctl help clean
[exit 2]

$ corralctl stop fix-auth
corralctl: cannot stop "fix-auth": no such session
[exit 4]

$ corralctl stop ../../etc 'x*' ''
corralctl: cannot stop "../../etc": no such session
corralctl: cannot stop "x*": no session matches "x*"
corralctl: cannot stop "": no such session
[exit 4]

$ corralctl stop
corralctl: stop: missing ID
hint: corralctl help stop
[exit 2]

$ corralctl run
corralctl: run: missing AGENT, or a command after --
hint: corralctl help run
[exit 2]

# A common mistake is to leave out --: the hint is the command that was meant.
$ corralctl run cat /etc/hosts; corralctl run --id here cat; corralctl run --worktree=fix cat -n /etc/hosts; corralctl run sh -c 'echo hi'; corralctl run cat -- /etc/hosts
corralctl: "cat" is not an agent; a command follows --
hint: corralctl run -- cat /etc/hosts
corralctl: cannot run "cat": no such agent
hint: corralctl run --id here -- cat
corralctl: unknown option "-n"
hint: corralctl run --worktree=fix -- cat -n /etc/hosts
corralctl: unknown option "-c"
hint: corralctl run -- sh -c 'echo hi'
corralctl: cannot run "cat": no such agent
hint: corralctl run -- cat /etc/hosts
[exit 1]

$ corralctl run command
corralctl: run command: missing CMD after --
hint: corralctl help run
[exit 2]

$ corralctl run no-such-agent
corralctl: cannot run "no-such-agent": no such agent
hint: corralctl agents
[exit 1]

$ corralctl run --id ../../etc -- true
corralctl: …../../etc…
[exit 1]

$ corralctl run --dir /nonexistent -- true
corralctl: …/nonexistent…
[exit 1]

$ corralctl run -p MemoryMaximum=1G -- true
corralctl: unknown unit property "MemoryMaximum"; known are: …
hint: corralctl help run
[exit 2]

$ corralctl run -E 'no name' -- true
corralctl: invalid variable "no name": expected NAME=VALUE or NAME
hint: corralctl help run
[exit 2]

$ mkdir -p ~/config/corral/agents && printf '[Agent]\nCommand=cat\n' >~/config/corral/agents/claude.agent && corralctl reload && corralctl run cluade
corralctl: cannot run "cluade": no such agent
hint: corralctl run claude
[exit 1]

$ corralctl run claude --model opus; corralctl run --id here claude fix it; corralctl run claude --worktre; corralctl run claude -c; corralctl run nothing here
corralctl: unknown option "--model"
hint: corralctl run claude -- --model opus
corralctl: run: expected one AGENT, not 3 words; its arguments follow --
hint: corralctl run --id here claude -- fix it
corralctl: unknown option "--worktre"
hint: corralctl run --worktree
corralctl: unknown option "-c"
hint: corralctl run claude -- -c
corralctl: "nothing" is neither an agent nor a program in PATH
hint: corralctl agents
[exit 2]

$ corralctl run -q --id fix-auth --no-start -- true && corralctl stop fix-atuh
corralctl: cannot stop "fix-atuh": no such session
hint: corralctl stop fix-auth
[exit 4]

$ corralctl label fix-auth notify=fialed
corralctl: label notify: invalid value "fialed": expected yes, no or some of failed, waiting, completed, stale, orphaned, suspended
hint: corralctl help label
[exit 2]

$ corralctl rm fix-auth

$ corralctl list --stat=failed
corralctl: unknown option "--stat"
hint: corralctl list --state
[exit 2]

$ corralctl list --state=runing
corralctl: unknown state "runing"; known are: …
hint: corralctl list --state=running
[exit 2]

$ corralctl stop --timeout=soon x
corralctl: invalid value "soon" for --timeout: expected a time such as 90 or "1min 30s"
hint: corralctl help stop
[exit 2]

$ corralctl wait --until=dead x
corralctl: unknown state "dead"; known are: …
hint: corralctl help wait
[exit 2]

$ corralctl attach x </dev/null
corralctl: cannot attach to "x": no such session
[exit 4]

$ corralctl run -q --id here -- sleep 1000; corralctl run -q --no-start --id there -- sleep 1000; corralctl attach here </dev/null; corralctl attach there </dev/null
corralctl: cannot attach: standard input is not a terminal
hint: corralctl peek here
corralctl: cannot attach: standard input is not a terminal
hint: corralctl status there
[exit 1]

$ corralctl run -q --id hereabouts --no-start -- true; corralctl is-active her
corralctl: cannot ask for "her": ambiguous id: matches here, hereabouts
[exit 1]

$ corralctl stop here && corralctl archive here && corralctl wait here
[exit 3]

$ corralctl rm -q here there hereabouts

$ corralctl list
0 sessions. Lingering is off.

$ corralctl list --columns=id,stat
corralctl: unknown column "stat"; known are: …
hint: corralctl list --columns=state
[exit 2]

$ corralctl list --label==web
corralctl: invalid label "=web": expected KEY or KEY=VALUE
hint: corralctl help list
[exit 2]
