# diff shows what an agent has changed since its branch left the branch on which it began, including
# untracked files. It neither runs nor writes anything in the repository.

$ git config --global user.name A && git config --global user.email a@b && git init -q -b main . && printf 'one\ntwo\n' >file && printf '*.o\n' >.gitignore && git add . && git commit -q -m first

$ corralctl run -q --worktree=fix --id fix -- sleep 1000; corralctl run -q --id shop -- sleep 1000; corralctl run -q --id far --dir / -- sleep 1000
$ corralctl diff fix
No changes of fix since …, the merge base with main.

$ cd ~/.local/share/corral/worktrees/fix && printf 'one\n2\n' >file && git commit -q -a -m second && printf 'new\n' >new && touch empty x.o && ln -s file link && mkdir -p sub/other && git init -q sub/other && echo 'one more' >>file
$ git commit -q --allow-empty -m 'meanwhile on main'

$ corralctl diff fix
Changes of fix since …, the merge base with main

diff --git a/empty b/empty
new file mode 100644
index 0000000..e69de29
diff --git a/file b/file
index 814f4a4..c236bba 100644
--- a/file
+++ b/file
@@ -1,2 +1,3 @@
 one
-two
+2
+one more
diff --git a/link b/link
new file mode 120000
...
diff --git a/new b/new
new file mode 100644
...
--- /dev/null
+++ b/new
@@ -0,0 +1 @@
+new

$ corralctl diff --name-only fix
empty
file
link
new

$ corralctl diff --no-legend --stat fix
 empty | 0
 file  | 3 ++-
 link  | 1 +
 new   | 1 +
 4 files changed, 4 insertions(+), 1 deletion(-)

# It is a patch that git applies, and the worktree's index is unchanged.
$ corralctl diff fix >~/patch && git apply --check ~/patch && git -C ~/.local/share/corral/worktrees/fix status --short
 M file
?? empty
?? link
?? new
?? sub/
$ ls -d ${TMPDIR:-/tmp}/corralctl-diff-* 2>/dev/null; corralctl diff fix | head -1; ls -d ${TMPDIR:-/tmp}/corralctl-diff-* 2>/dev/null
Changes of fix since …, the merge base with main
[exit 2]

# In a workspace that the user has made, diff shows what is not committed on its default branch.
# Untracked files are those of the workspace.
$ corralctl diff shop
No changes of shop since …, the last commit.
$ echo three >>file; corralctl diff --name-only shop; corralctl diff --base=HEAD~1 --no-legend shop | grep '^[+-]'
file
--- a/file
+++ b/file
+three

# On a terminal it has git's colours, and control characters are escaped.
$ printf 'one\ntwo\n\033[8mhidden\n' >file; TERM=xterm script -qec 'corralctl --no-pager diff shop' /dev/null | tail -1 | tr -d '\r' | cat -v
^[[32m+\x1b[8mhidden^[[0m
$ TERM=xterm script -qec 'corralctl --no-pager diff --stat shop' /dev/null | head -3 | tr -d '\r' | cat -v
^[[0;2mChanges of shop since …, the last commit^[[0m

 file | 1 ^[[32m+^[[m
$ script -qec 'env -u NO_COLOR TERM=xterm PAGER=cat GIT_PAGER="sed s/hidden/paged/" corralctl diff shop' /dev/null | tail -1 | tr -d '\r' | cat -v
^[[32m+\x1b[8mpaged^[[0m
$ git config core.pager 'touch ~/paged; cat'; git config pager.diff 'touch ~/paged; cat'; script -qec 'TERM=xterm corralctl diff shop' /dev/null >/dev/null; ls ~/paged
ls: cannot access '~/paged': No such file or directory
[exit 2]

$ corralctl diff
corralctl: diff: missing ID
hint: corralctl help diff
[exit 2]

$ corralctl diff fix shop
corralctl: diff: expected one ID, not 2
hint: corralctl help diff
[exit 2]

$ corralctl diff --json fix
corralctl: diff: --json is not supported; use --name-only in scripts
hint: corralctl help diff
[exit 2]

$ corralctl diff --stat --name-only fix
corralctl: diff: --stat and --name-only exclude each other
hint: corralctl help diff
[exit 2]

$ corralctl diff --base=nonesuch fix
corralctl: cannot show the changes of "fix": unknown revision "nonesuch"
hint: git -C ~/.local/share/corral/worktrees/fix branch --all
[exit 2]

$ git checkout -q --orphan other && git commit -q -m other && git checkout -q -f main && corralctl diff --base=other shop
corralctl: cannot show the changes of "shop": no merge base with "other": their histories share no commit
[exit 1]

$ corralctl diff far
corralctl: cannot show the changes of "far": / is not in a git repository
hint: git init /
[exit 1]

$ PATH=$(dirname $(command -v corralctl)) corralctl diff shop
corralctl: cannot show the changes of "shop": git is not installed, or not in PATH
[exit 1]

$ mkdir ~/fresh && cd ~/fresh && git init -q && echo a >a && corralctl run -q --id fresh -- sleep 1000 && corralctl diff --stat fresh; corralctl diff --base=HEAD fresh
Changes of fresh in a repository without a commit

 a | 1 +
 1 file changed, 1 insertion(+)
corralctl: cannot show the changes of "fresh": unknown revision "HEAD"
hint: git -C ~/fresh branch --all
[exit 2]
