# A session on a branch of its own, and one that gets its first prompt from run.

$ git init -q . && git -c user.name=A -c user.email=a@b commit -q --allow-empty -m first && git branch -m main

$ corralctl run --worktree -- sleep 1000
Started session shop (app-corral-command-shop.scope).

$ corralctl run --worktree=fix --id fix -- sleep 1000
Started session fix (app-corral-command-fix.scope).

$ corralctl list --no-legend
fix  sleep running … …s ~/src/shop (fix)
shop sleep running … …s ~/src/shop (corral/shop)

$ corralctl status -n 0 shop | grep -A 1 Workspace
    Workspace: …/.local/share/corral/worktrees/shop
     Worktree: branch corral/shop of ~/src/shop

$ corralctl show -P Worktree fix
fix

$ touch ~/.local/share/corral/worktrees/shop/new; corralctl stop shop; corralctl rm --worktree shop
corralctl: cannot remove "shop": the worktree of session "shop" has 1 untracked file: …/.local/share/corral/worktrees/shop
hint: git -C …/.local/share/corral/worktrees/shop status
[exit 1]

$ corralctl rm --worktree --force shop && ls ~/.local/share/corral/worktrees && git branch
fix
+ fix
* main

$ corralctl rm --force fix
The worktree of fix was kept: …/.local/share/corral/worktrees/fix (branch fix)

$ corralctl run --worktree=fix -- true
corralctl: cannot create a worktree of workspace "~/src/shop": … 'fix' is already checked out at …
[exit 1]

$ corralctl run --worktree fix claude
corralctl: run: expected one AGENT, not 2 words; a branch follows =
hint: corralctl run --worktree=fix claude
[exit 2]

# A session of which only the start has failed has its worktree.
$ printf '#!/nonexistent\n' >~/broken && chmod +x ~/broken && corralctl run --worktree=broken -- ~/broken; corralctl rm -q --force --worktree broken
corralctl: cannot start "broken": command "~/broken" needs an interpreter that does not exist
hint: corralctl status broken

$ corralctl run --dir / --worktree -- true
corralctl: cannot create a worktree of workspace "/": … not a git repository …
[exit 1]

$ corralctl run -q --wait --id told --prompt 'fix it' -- sh -c 'printf go; read a; echo "told <$a>"' && corralctl logs told | grep '^told'
told <fix it>

$ printf 'and\nthis\n' | corralctl run -q --wait --id piped --prompt - -- sh -c 'printf go; read a; read b; echo "told <$a> <$b>"' && corralctl logs piped | grep '^told'
told <and> <this>

$ corralctl rm -q --force --all

# Work that exists nowhere else keeps a worktree: commits on its branch or on none, work in a
# submodule, or files hidden from git's status.
$ git config --global user.name A && git config --global user.email a@b && git config --global protocol.file.allow always && git init -q ~/lib && git -C ~/lib commit -q --allow-empty -m lib
$ echo one >file && git add file && git submodule --quiet add ~/lib lib && git commit -q -m second && echo two >file && echo dirty >new

# Uncommitted changes stay in the directory where run was called.
$ corralctl run -q --id work --worktree -- sleep 1000; cd ~/.local/share/corral/worktrees/work && cat file && ls && git status --short; cat ~/src/shop/file
one
file
lib
two

$ cd ~/.local/share/corral/worktrees/work && git commit -q --allow-empty -m mine; corralctl stop work; corralctl rm --worktree work
corralctl: cannot remove "work": the worktree of session "work" has 1 commit that is neither merged nor pushed: ~/.local/share/corral/worktrees/work
hint: git -C ~/.local/share/corral/worktrees/work status
[exit 1]

$ git merge -q corral/work && cd ~/.local/share/corral/worktrees/work && git submodule --quiet update --init && echo x >lib/x && corralctl rm --worktree work
corralctl: cannot remove "work": the worktree of session "work" has unsaved work in submodule "lib": ~/.local/share/corral/worktrees/work
hint: git -C ~/.local/share/corral/worktrees/work status
[exit 1]

$ cd ~/.local/share/corral/worktrees/work && rm lib/x && git update-index --assume-unchanged file && echo hidden >file && corralctl rm --worktree work
corralctl: cannot remove "work": the worktree of session "work" has 1 uncommitted change: ~/.local/share/corral/worktrees/work
hint: git -C ~/.local/share/corral/worktrees/work status
[exit 1]

# A merged branch is removed with its worktree, without a question.
$ cd ~/.local/share/corral/worktrees/work && echo one >file && cd && corralctl rm --worktree work && ls ~/.local/share/corral/worktrees && git -C src/shop branch && cat src/shop/file
fix
+ fix
* main
two

# A session is named after its branch, and a branch after its session; if the name is taken, both
# get the same number.
$ corralctl run --worktree=feature/fix-auth -- sleep 1000; corralctl run --worktree=feature-fix-auth -- sleep 1000
Started session feature-fix-auth (app-corral-command-feature-fix-auth.scope).
Started session feature-fix-auth-2 (app-corral-command-feature-fix-auth-2.scope).

$ git branch corral/shop; git branch corral/shop-2; corralctl run --worktree -- sleep 1000; corralctl show -P Worktree shop-3; git branch -D -q corral/shop corral/shop-2
Started session shop-3 (app-corral-command-shop-3.scope).
corral/shop-3

$ corralctl run --worktree -- ./nothing; git branch --list 'corral/*'
corralctl: cannot run "./nothing": command "./nothing" not found
+ corral/shop-3

# A branch on which nobody has committed anything is removed.
$ touch ~/.local/share/corral/worktrees/shop-3/new; corralctl rm --force --worktree shop-3 'feature-*'; git branch --list 'corral/*' 'feature*'

# A bare repository, and an existing branch: the branch stays, and work on it that exists nowhere
# else keeps the worktree.
$ git clone -q --bare . ~/bare.git && corralctl run -q --id bare --dir ~/bare.git --worktree=corral/shop -- sleep 1000 && cd ~/.local/share/corral/worktrees/bare && git branch --show-current && git commit -q --allow-empty -m bare
corral/shop

$ corralctl stop bare; corralctl rm --worktree bare
corralctl: cannot remove "bare": the worktree of session "bare" has 1 commit that is neither merged nor pushed: ~/.local/share/corral/worktrees/bare
hint: git -C ~/.local/share/corral/worktrees/bare status
[exit 1]

$ corralctl rm --worktree --force bare && git -C ~/bare.git log -1 --format=%s corral/shop && git -C ~/bare.git worktree list | wc -l
bare
1

# rm --worktree does not remove a running session without --force.
$ corralctl run -q --id busy --worktree -- sleep 1000 && touch ~/.local/share/corral/worktrees/busy/a && corralctl rm --worktree busy
corralctl: cannot remove "busy": it is running
hint: corralctl stop busy
[exit 1]

$ corralctl rm -q --force --all

# A worktree that was removed by hand, with git's record of it, is no obstacle to removing its
# session.
$ for id in first second; do corralctl run -q --id $id --worktree -- sleep 1000; corralctl stop $id; rm -r ~/.local/share/corral/worktrees/$id; done; git worktree prune

$ corralctl rm first; corralctl rm --worktree second; git branch --list corral/first corral/second
  corral/first
