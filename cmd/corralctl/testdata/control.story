# An agent may control the sessions that it has created, and their descendants. A command that it
# runs is passed to its session by a file.
$ corralctl run -q --id other -- sleep 1000
$ mkfifo go && corralctl run -q --id lead -- sh -c 'while read -r line <go; do { sh -c "$line"; echo "[exit $?]"; } >said.new 2>&1; mv said.new said; done'
$ printf '#!/bin/sh\nrm -f said; echo "$*" >go; until [ -e said ]; do sleep 0.05; done; grep -v "^.exit" said; exit $(sed -n "s/^.exit \\([0-9]*\\).$/\\1/p" said)\n' >~/lead && printf '#!/bin/sh\nexec timeout 20 sh ~/lead "$@"\n' >~/in && chmod +x ~/in

$ ~/in 'corralctl run --id worker -- sh -c "corralctl run -q --id helper -- cat; corralctl run -q --id second -- cat; exec cat"'
Started session worker (app-corral-command-worker.scope).

$ until corralctl show -P State second 2>/dev/null | grep -q running; do sleep 0.1; done; corralctl list --tree
ID         AGENT STATE   ACTIVITY SINCE WORKSPACE
lead       sh    running working  …s    ~/src/shop
└─worker   sh    running working  …s    ~/src/shop
  ├─helper cat   running working  …s    ~/src/shop
  └─second cat   running working  …s    ~/src/shop
other      sleep running working  …s    ~/src/shop

5 sessions. …

$ corralctl list --tree --plain --no-legend --columns=id,parent
lead       -
  worker   lead
    helper worker
    second worker
other      -

$ corralctl status -n0 worker | grep Parent; corralctl list --json=short helper | grep -o '"Parent":"[^"]*"'; corralctl show -P Parent lead
       Parent: lead
"Parent":"worker"


# The session itself and its descendants.
$ ~/in 'corralctl stop helper && corralctl label worker a=b && corralctl describe lead first && corralctl list --no-legend --columns=state,id helper'
stopped helper

# Others can be read, and nothing else.
$ ~/in 'corralctl status other >/dev/null && corralctl logs other && corralctl peek other'
$ ~/in 'corralctl stop other'
corralctl: cannot stop "other": it cannot be controlled from session "lead": this requires AgentsMayControl=all, in corral.conf or in the definition of agent "command"
[exit 1]
$ ~/in 'corralctl send other hello'
corralctl: cannot send to "other": it cannot be controlled from session "lead": this requires AgentsMayControl=all, in corral.conf or in the definition of agent "command"
[exit 1]
$ ~/in 'corralctl clean'
corralctl: cannot clean: not all sessions can be controlled from session "lead": this requires AgentsMayControl=all, in corral.conf or in the definition of agent "command"
[exit 1]

# Its own request for a permission is not the agent's to answer.
$ ~/in 'corralctl report waiting --reason=permission --message="may I?"; corralctl send lead y; corralctl report working'
corralctl: cannot send to "lead": it cannot answer its own request for a permission: this requires AgentsMayControl=all, in corral.conf or in the definition of agent "command"

# A child remains one if its parent is removed. Another session of that name is not its parent.
$ ~/in 'corralctl stop worker; corralctl rm worker && corralctl list --no-legend --columns=id,parent second'
second worker
$ corralctl run -q --id worker -- sleep 1000; corralctl list --tree --no-legend --columns=id
helper
lead
other
second
worker

# The settings.
$ mkdir -p ~/config/corral && printf '[Corral]\nAgentsMayControl=none\n' >~/config/corral/corral.conf && corralctl reload && ~/in 'corralctl run -- true; corralctl describe lead "none"'
corralctl: cannot run "true": no session can be created from session "lead": this requires AgentsMayControl=descendants, in corral.conf or in the definition of agent "command"
corralctl: cannot describe "lead": it cannot be controlled from itself: this requires AgentsMayControl=descendants, in corral.conf or in the definition of agent "command"
[exit 1]
$ printf '[Corral]\nAgentsMayControl=some\n' >~/config/corral/corral.conf && corralctl reload && corralctl doctor | grep MayControl
note  configuration  ~/config/corral/corral.conf:2: AgentsMayControl=: invalid value "some": expected none, descendants or all, ignored
$ mkdir -p ~/config/corral/agents && printf '[Agent]\nAgentsMayControl=all\n' >~/config/corral/agents/command.agent && corralctl reload && ~/in 'corralctl stop other'
