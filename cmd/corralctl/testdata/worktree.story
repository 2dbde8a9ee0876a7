# A session on a branch of its own, and one that is told what to do first.

$ git init -q . && git -c user.name=A -c user.email=a@b commit -q --allow-empty -m first && git branch -m main

$ corralctl run --worktree -- sleep 1000
Started session shop (app-corral-command-shop.scope).

$ corralctl run --worktree=fix --id fix -- sleep 1000
Started session fix (app-corral-command-fix.scope).

$ corralctl list --no-legend
fix  command running … …s ~/.local/share/corral/worktrees/fix (branch fix)
shop command running … …s ~/.local/share/corral/worktrees/shop (branch corral/shop)

$ corralctl status -n 0 shop | grep Workspace
    Workspace: …/.local/share/corral/worktrees/shop (branch corral/shop)

$ corralctl show -P Worktree fix
fix

$ touch ~/.local/share/corral/worktrees/shop/new; corralctl stop shop; corralctl rm --worktree shop
corralctl: cannot remove "shop": the worktree of session "shop" has 1 untracked file: …/.local/share/corral/worktrees/shop
hint: git -C …/.local/share/corral/worktrees/shop status
[exit 1]

$ corralctl rm --worktree --force shop && ls ~/.local/share/corral/worktrees && git branch
fix
  corral/shop
+ fix
* main

$ corralctl rm --force fix
The worktree of fix stays: …/.local/share/corral/worktrees/fix (branch fix)

$ corralctl run --worktree=fix -- true
corralctl: cannot run "command": … 'fix' is already checked out at …
[exit 1]

$ corralctl run --worktree fix claude
corralctl: run takes one agent, not 2 words; a branch comes after =
hint: corralctl run --worktree=fix claude
[exit 2]

$ corralctl run --dir / --worktree -- true
corralctl: cannot run "command": … not a git repository …
[exit 1]

$ corralctl run -q --wait --id told --prompt 'fix it' -- sh -c 'printf go; read a; echo "told <$a>"' && corralctl logs told | grep '^told'
told <fix it>

$ printf 'and\nthis\n' | corralctl run -q --wait --id piped --prompt - -- sh -c 'printf go; read a; read b; echo "told <$a> <$b>"' && corralctl logs piped | grep '^told'
told <and> <this>

$ corralctl rm -q --force --all
