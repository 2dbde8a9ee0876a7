# status shows what a session does, where, how often it has run, and what was set for it.

$ git init -q . && git -c user.name=A -c user.email=a@b commit -q --allow-empty -m first

$ corralctl run -q --worktree=fix-auth --label team=web --on-login=resume -p TasksMax=100 -- sh -c 'echo hello; exec sleep 1000' && corralctl set-property fix-auth CPUQuota=150% RuntimeMaxSec=1d 2>/dev/null; corralctl set-property fix-auth CPUWeight=30; corralctl label fix-auth urgent=yes
$ until corralctl status -n 1 fix-auth | grep -q hello; do :; done; corralctl status fix-auth | grep -v 'Main PID\|Tasks:\|Memory:\|CPU:\|CGroup\|─'
● fix-auth
        State: running…
     Activity: …
        Agent: command
      Command: sh -c 'echo hello; exec sleep 1000'
    Workspace: ~/.local/share/corral/worktrees/fix-auth
     Worktree: branch fix-auth of ~/src/shop
         Unit: app-corral-command-fix-auth.scope
         Runs: 1, this one for …s
       Limits: TasksMax=100 CPUWeight=30
     At login: resume
       Labels: team=web,urgent=yes

hello

# The unit's description, which systemctl lists, is the program.
$ systemctl --user list-units --no-legend --plain app-corral-command-fix-auth.scope
app-corral-command-fix-auth.scope loaded active running sh in ~/.local/share/corral/worktrees/fix-auth

$ corralctl restart fix-auth && corralctl stop fix-auth && corralctl status fix-auth | grep -A 7 'Runs'
         Runs: 2, the last one for …s, in total …s
               …: success
               …: success
       Limits: TasksMax=100 CPUWeight=30
     At login: resume
       Labels: team=web,urgent=yes

The last lines of the log, which has 2 runs:

$ corralctl list --no-legend -l --label=team --columns=id,labels,login,branch,total
fix-auth team=web,urgent=yes resume fix-auth …s

$ corralctl list --json --sort=-total | grep -o '"TotalRuntimeUSec":[1-9]' | sort -u | wc -l
1
