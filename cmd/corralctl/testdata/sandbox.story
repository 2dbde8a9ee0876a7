# A session whose agent is confined by bubblewrap.

$ mkdir -p ~/config/corral/sandboxes && printf '[Sandbox]\nDescription=A test\nHide=%%h/.ssh\nUnset=SSH_*\n' >~/config/corral/sandboxes/workspace.sandbox && printf '[Sandbox]\nNetwork=none\n' >~/config/corral/sandboxes/closed.sandbox && corralctl reload

$ mkdir ~/.ssh && echo key >~/.ssh/id && git init -q .
$ corralctl run --sandbox -- sh -c "cat $HOME/.ssh/id; touch $HOME/other; touch mine; corralctl report idle --reason=turn-ended; sleep 1000"
Started session shop (app-corral-command-shop.scope).
$ until corralctl show -P Activity shop | grep -q idle; do sleep 0.1; done; corralctl logs shop
cat: ~/.ssh/id: No such file or directory
touch: cannot touch '~/other': Read-only file system
$ ls
mine
$ corralctl status -n 0 shop | grep -E 'Activity|Sandbox'
     Activity: idle
      Sandbox: bubblewrap, workspace (network open)
$ corralctl show -p Sandbox -p SandboxTool -p SandboxNetwork shop
Sandbox=workspace
SandboxTool=bubblewrap
SandboxNetwork=open
$ corralctl stop shop && corralctl start shop && corralctl stop -q shop

# Without a network; and not started yet.
$ corralctl run --sandbox=closed --no-start --id closed -- sh -c 'tail -n +3 /proc/net/dev | cut -d: -f1; corralctl list'
Created session closed.
$ corralctl status -n 0 closed | grep Sandbox
      Sandbox: closed
$ corralctl start closed; corralctl wait -q closed; corralctl logs closed
    lo
corralctl: cannot list sessions: corrald cannot be reached from sandbox "closed"

# An agent of which the definition has a sandbox.
$ mkdir -p ~/config/corral/agents && printf '[Agent]\nCommand=sh -c "echo in $CORRAL_SANDBOX."\nSandbox=workspace\n' >~/config/corral/agents/tool.agent && corralctl reload
$ corralctl run --id a tool; corralctl run --id b --sandbox=none tool; corralctl wait -q a b; corralctl logs a; corralctl logs b
Started session a (app-corral-tool-a.scope).
Started session b (app-corral-tool-b.scope).
in workspace.
in .

$ corralctl run --sandbox=other -- true
corralctl: cannot run "true": invalid Sandbox: no usable sandbox profile "other"; usable are: closed, workspace
[exit 1]

$ cd ~ && corralctl run --sandbox --id home -- true
corralctl: cannot start "home": cannot set up sandbox "workspace": "~" cannot be writable in a sandbox: it contains "~"
hint: corralctl status home
[exit 1]

# A profile with an invalid line is not used: that line could be one that protects something.
$ printf '[Sandbox]\nNetwork=lan\n' >~/config/corral/sandboxes/closed.sandbox; corralctl reload; corralctl start closed
corralctl: cannot start "closed": cannot set up sandbox "closed": no usable sandbox profile "closed"; usable are: workspace
hint: corralctl status closed
[exit 1]
$ corralctl doctor | grep -E 'closed|sandbox  '
note  configuration  ~/config/corral/sandboxes/closed.sandbox:2: Network=: invalid value "lan": expected open or none, ignored
note  configuration  ~/config/corral/sandboxes/closed.sandbox: the sandbox profile cannot be used: a line that is ignored could be one that protects something
ok    sandbox        …/bwrap; profiles: workspace
$ sed -i s/workspace/closed/ ~/config/corral/agents/tool.agent; corralctl reload; corralctl run --id c tool
corralctl: cannot run "tool": agent "tool": Sandbox=: no usable sandbox profile "closed"; usable are: workspace
[exit 1]
$ corralctl doctor | grep tool.agent
note  configuration  ~/config/corral/agents/tool.agent:3: Sandbox=: no usable sandbox profile "closed"; usable are: workspace

# What sets a worktree up and tears it down runs in the sandbox, too: the agent may have written what
# it executes.
$ cd ~/src/shop && mkdir .corral && printf '#!/bin/sh\necho "in $CORRAL_SANDBOX"; cat %s/.ssh/id; touch ready %s/ready; echo $0 | grep -c scripts\n' $HOME $HOME >.corral/setup && printf '#!/bin/sh\ntouch %s/gone || echo confined\n' $HOME >.corral/teardown && chmod +x .corral/* && git add .corral && git -c user.name=A -c user.email=a@b commit -q -m first && corralctl trust -y >/dev/null
$ corralctl run -q --sandbox --worktree --id tree -- sh -c 'ls; exec sleep 1000'; until corralctl logs tree | grep -q ready$; do sleep 0.1; done; corralctl logs tree
in workspace
cat: ~/.ssh/id: No such file or directory
touch: cannot touch '~/ready': Read-only file system
1
ready
$ corralctl stop tree; rm ~/.local/share/corral/worktrees/tree/ready; corralctl rm --worktree tree; ls ~/gone ~/ready
ls: cannot access '~/gone': No such file or directory
ls: cannot access '~/ready': No such file or directory
[exit 2]
