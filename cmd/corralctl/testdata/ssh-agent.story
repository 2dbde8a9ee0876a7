# A session reaches the ssh-agent of the newest login, for as long as the session runs.

$ for n in 1 2; do ssh-keygen -q -t ed25519 -N '' -C "key-of-login-$n" -f ~/key-$n; done
$ corralctl doctor | grep ' ssh-agent '
ok    ssh-agent      no ssh-agent seen yet; the first one found will be used

$ cat >~/login.sh <<'EOF'
> login() { ssh-agent -a ~/agent-$1 >~/agent-$1.sh; SSH_AUTH_SOCK=~/agent-$1 ssh-add -q ~/key-$1; }
> logout() { . ~/agent-$1.sh >/dev/null; ssh-agent -k >/dev/null; }
> keys() { corralctl send shop "$1"; until corralctl logs shop | grep -q "$1 end"; do :; done; corralctl logs shop | sed -n "s/^$1: //p"; }
> EOF

# The first login starts the session and logs out.
$ . ~/login.sh; login 1; SSH_AUTH_SOCK=~/agent-1 corralctl run -q --id shop -- sh -c 'while read -r x; do ssh-add -l 2>&1 | sed "s/^/$x: /"; echo "$x end"; done'
$ . ~/login.sh; keys first
256 SHA256:… key-of-login-1 (ED25519)

$ corralctl doctor | grep ' ssh-agent '
ok    ssh-agent      agents use ~/agent-1

$ . ~/login.sh; logout 1; keys between
Error connecting to agent: No such file or directory

$ corralctl doctor | grep -A1 ' ssh-agent '
note  ssh-agent      the ssh-agent of an earlier login is gone, and agents have none: ~/agent-1
                     -> use corralctl attach or run in a login that has one (ssh -A, or eval $(ssh-agent))

# The second login attaches.
$ . ~/login.sh; login 2; SSH_AUTH_SOCK=~/agent-2 tmux -S ~/terminal -f /dev/null new-session -d -x 80 -y 12 'corralctl attach shop; exec sleep 1000'
$ n=0; until [ "$(readlink $XDG_RUNTIME_DIR/corral/.ssh-auth.sock)" = ~/agent-2 ]; do n=$((n+1)); [ $n -lt 5000 ] || break; done; tmux -S ~/terminal kill-server
$ . ~/login.sh; keys second
256 SHA256:… key-of-login-2 (ED25519)

# A login without an ssh-agent does not remove the link.
$ . ~/login.sh; SSH_AUTH_SOCK=~/agent-1 corralctl run -q --id other -- sleep 1000; keys third; logout 2
256 SHA256:… key-of-login-2 (ED25519)
