# A new worktree is ready to run: files that git does not track, and the commands that set it up.

$ git init -q . && printf '.env\n' >.gitignore && git add . && git -c user.name=A -c user.email=a@b commit -q -m first

# Files that git does not track are copied if .worktreeinclude names them.
$ printf '.env\n.editor/\n' >.worktreeinclude && echo KEY=1 >.env && echo 1 >notes && mkdir .editor && ln -s ../.env .editor/link
$ corralctl run -q --id files --worktree -- sleep 1000 && cd ~/.local/share/corral/worktrees/files && ls -A && cat .editor/link
.editor
.env
.git
.gitignore
KEY=1

# Those that git does not ignore are work, like any others.
$ corralctl stop files; corralctl rm --worktree files
corralctl: cannot remove "files": the worktree of session "files" has 1 untracked file (and 1 ignored): ~/.local/share/corral/worktrees/files
hint: git -C ~/.local/share/corral/worktrees/files status
[exit 1]
$ echo .editor/ >>.gitignore && cp .gitignore ~/.local/share/corral/worktrees/files && cd ~/.local/share/corral/worktrees/files && git -c user.name=A -c user.email=a@b commit -qam second && cd ~/src/shop && git checkout -q . && git merge -q corral/files && corralctl rm --worktree files && ls ~/.local/share/corral/worktrees

# A file that cannot be copied: nothing is created.
$ chmod 0 .env; corralctl run --worktree -- sleep 1000; chmod 600 .env; git branch --list 'corral/*'; corralctl list --no-legend
corralctl: cannot create a worktree of workspace "~/src/shop": cannot copy ".env" (.worktreeinclude): … permission denied

# Commands that are configured for the repository set a worktree up and tear it down. They get the
# environment of the agent.
$ mkdir -p ~/config/corral/repositories && cat >~/config/corral/repositories/shop.repository <<'END'
> [Match]
> Path=%h/src/shop
> [Worktree]
> Ports=1
> SetupCommand=sh -c 'echo "set up $CORRAL_BRANCH of $CORRAL_REPOSITORY for $CORRAL_SESSION, $MINE"; pwd; echo $CORRAL_PORT >.env; test $CORRAL_WORKTREE = $PWD'
> TeardownCommand=sh -c 'echo "port $(cat .env)" | sed "s/2[0-9]*/is known/"; echo torn down >$CORRAL_REPOSITORY/down'
> END
$ corralctl reload; MINE=mine corralctl run -q --id one --worktree -- sh -c 'grep $CORRAL_PORT .env; echo the agent; exec sleep 1000'; until corralctl logs one | grep 'agent'; do :; done; corralctl logs one
the agent
set up corral/one of ~/src/shop for one, mine
~/.local/share/corral/worktrees/one
2…
the agent
$ corralctl restart one; corralctl logs one | grep -c 'set up'; corralctl rm --force --worktree one; cat down; rm down
1
torn down

# If the setup fails, the agent is not started. Another start tries again, with what is configured by
# then.
$ sed -i "s/^SetupCommand=.*/SetupCommand=sh -c 'echo fetching; echo no network >\\&2; exit 3'/" ~/config/corral/repositories/shop.repository && corralctl reload && corralctl run --id two --worktree -- sleep 1000
corralctl: cannot start "two": its worktree could not be set up: command "sh" exited with code 3: no network
hint: corralctl logs two
[exit 1]
$ corralctl list --no-legend --columns=id,state; corralctl status two | grep -v Ports
two created
○ two
        State: created since …
       Reason: its worktree could not be set up: command "sh" exited with code 3: no network
        Agent: command
      Command: sleep 1000
    Workspace: ~/.local/share/corral/worktrees/two
     Worktree: branch corral/two of ~/src/shop
         Unit: app-corral-command-two.scope
         Runs: 0

fetching
no network
$ corralctl start two
corralctl: cannot start "two": its worktree could not be set up: command "sh" exited with code 3: no network
hint: corralctl logs two
[exit 1]
$ corralctl logs two
fetching
no network
fetching
no network
$ sed -i 's/^SetupCommand=.*/SetupCommand=true/' ~/config/corral/repositories/shop.repository && corralctl reload && corralctl start two && corralctl show -P State two
running

# A teardown that fails keeps the worktree, unless it is forced.
$ corralctl stop two; sed -i "s/^TeardownCommand=.*/TeardownCommand=sh -c 'echo still in use; exit 1'/" ~/config/corral/repositories/shop.repository && corralctl reload && corralctl rm --worktree two
corralctl: cannot remove "two": the worktree of session "two" cannot be torn down: command "sh" exited with code 1: still in use: ~/.local/share/corral/worktrees/two
hint: corralctl logs two
[exit 1]
$ corralctl logs two | tail -n 1; corralctl rm --force --worktree two; ls ~/.local/share/corral/worktrees
still in use

# A session without the setup, and a setup that is stopped.
$ sed -i "s/^SetupCommand=.*/SetupCommand=sh -c 'echo begun; exec sleep 1000'/" ~/config/corral/repositories/shop.repository && corralctl reload && corralctl run -q --id bare --worktree --no-setup -- sleep 1000 && corralctl rm --force --worktree bare
$ corralctl run --id three --worktree -- sleep 1000 2>~/failed & until corralctl logs three 2>/dev/null | grep begun; do :; done; corralctl show -P State,Reason three; corralctl start three; corralctl peek three; corralctl stop three; wait; cat ~/failed
begun
created
its worktree is being set up
corralctl: cannot start "three": the worktree of session "three" is being set up
hint: corralctl status three
corralctl: cannot read the screen of session "three": it was never started
hint: corralctl logs three
corralctl: cannot run "sleep": session "three" was stopped meanwhile
hint: corralctl status three
$ corralctl show -P Reason three; corralctl rm --force --worktree three
its worktree could not be set up: it was stopped

$ sed -i 's/^SetupCommand=.*/SetupCommand=sleep 1000\nSetupTimeoutSec=200ms/' ~/config/corral/repositories/shop.repository && corralctl reload && corralctl run -q --id four --worktree -- sleep 1000; corralctl rm -q --force --worktree four
corralctl: cannot start "four": its worktree could not be set up: command "sleep" took longer than 200ms
hint: corralctl logs four

$ corralctl run --no-setup -- true
corralctl: --no-setup needs --worktree
hint: corralctl help run
[exit 2]

# Scripts of the repository are executed once the user has approved them, exactly as they are.
$ rm ~/config/corral/repositories/shop.repository; corralctl reload; mkdir .corral; printf '#!/bin/sh\necho set up by the script\n' >.corral/setup; printf '#!/bin/sh\ntouch ~/src/shop/down; exit 1' >.corral/teardown; git add .corral && git -c user.name=A -c user.email=a@b commit -qm scripts
$ corralctl run --id five --worktree -- sleep 1000; corralctl show -P State five
corralctl: cannot start "five": its worktree could not be set up: .corral/setup was not approved, or has changed since: corralctl trust ~/.local/share/corral/worktrees/five
hint: corralctl trust ~/.local/share/corral/worktrees/five
created
$ corralctl trust ~/.local/share/corral/worktrees/five
==> ~/.local/share/corral/worktrees/five/.corral/setup <==
…!/bin/sh
echo set up by the script
==> ~/.local/share/corral/worktrees/five/.corral/teardown <==
…!/bin/sh
touch ~/src/shop/down; exit 1
corralctl: cannot approve scripts: there is no terminal to ask on
hint: corralctl trust --yes
[exit 1]
$ tty() { answer=$1; shift; echo "$answer" | script -E never -qec "$*" /dev/null | tr -d '\r'; }; tty n corralctl trust | tail -n 1; corralctl start five 2>&1 | tail -n 1; tty y corralctl trust . | tail -n 2; corralctl start five && corralctl logs five
Execute 2 scripts for new worktrees of this repository? [y/N] Aborted.
hint: corralctl trust ~/.local/share/corral/worktrees/five
Execute 2 scripts for new worktrees of this repository? [y/N] Approved .corral/setup of ~/src/shop.
Approved .corral/teardown of ~/src/shop.
set up by the script
$ corralctl trust; corralctl trust --list --no-legend; corralctl trust --list --json | grep -o '"Script":"[^"]*"'
.corral/setup of ~/src/shop is approved already.
.corral/teardown of ~/src/shop is approved already.
~/src/shop .corral/setup    … …
~/src/shop .corral/teardown … …
"Script":".corral/setup"
"Script":".corral/teardown"

# A changed script has to be approved again, also by somebody who is no agent. With a command of the
# user's, the scripts are not executed.
$ corralctl stop five; echo 'rm -rf ~' >>~/.local/share/corral/worktrees/five/.corral/teardown; cd ~/.local/share/corral/worktrees/five && git -c user.name=A -c user.email=a@b commit -qam evil; cd ~/src/shop && git merge -q corral/five; corralctl rm --worktree five; ls
corralctl: cannot remove "five": the worktree of session "five" cannot be torn down: .corral/teardown was not approved, or has changed since: corralctl trust ~/.local/share/corral/worktrees/five: ~/.local/share/corral/worktrees/five
hint: corralctl trust ~/.local/share/corral/worktrees/five
notes
$ corralctl run -q --id agent --wait -- corralctl trust --yes . ; corralctl logs agent
corralctl: cannot approve scripts: this is a session, and an agent cannot approve what Corral executes
$ printf '[Match]\nPath=%%h/src/shop\n[Worktree]\nTeardownCommand=true\n' >~/config/corral/repositories/shop.repository && corralctl reload && corralctl rm --worktree five; ls ~/.local/share/corral/worktrees
$ corralctl trust --remove; corralctl trust --remove; corralctl trust --list --no-legend
Removed 2 approvals for ~/src/shop.
corralctl: no script of ~/src/shop was approved
hint: corralctl trust --list

# Mistakes.
$ corralctl trust /; corralctl trust nowhere
corralctl: cannot approve scripts: / is not in a working tree of git
corralctl: cannot approve scripts: …
[exit 1]
$ corralctl trust a b; corralctl trust --list a; PATH=${PATH%%:*} corralctl trust
corralctl: trust: expected one PATH, not 2 words
hint: corralctl help trust
corralctl: --list excludes --remove and PATH
hint: corralctl help trust
corralctl: cannot approve scripts: git is not installed, or not in PATH
[exit 1]
