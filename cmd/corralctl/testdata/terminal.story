# On a terminal everything fits into its width, and text from an agent or a person is only text.

$ mkdir -p ~/config/corral && printf '[Corral]\nIdleAfterSec=1h\n' >~/config/corral/corral.conf && corralctl reload

$ mkdir -p ~/src/a-name-that-goes-on-and-on/漢字漢字漢字 && corralctl run -q --id wide --dir ~/src/a-name-that-goes-on-and-on/漢字漢字漢字 --description "$(printf 'wide 漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字 \033[31mred')" -- bash -c 'printf "\033[1mbold\033[0m\n漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字\nready\n"; exec -a "$(printf "title \033[31m 漢字")" sleep 1000'
$ corralctl run -q --id gone --wait -- sh -c 'exit 3'
[exit 3]

$ cat >~/terminal.sh <<'EOF'
> t() { tmux -S ~/terminal$socket "$@"; }
> show() { w=$1 socket=$$; shift; t -f /dev/null new-session -d -x $w -y 40 "$*; echo THE END; exec sleep 1000"; until t capture-pane -p | grep -q '^THE END' || ! t has-session; do :; done; t capture-pane -p$e | sed 's/ *$//;/^$/d;/^THE END/d'; t kill-server; }
> EOF

$ until corralctl peek wide | grep -q ready; do :; done

# Sessions that need attention are marked; the workspace is shortened, and keeps its end.
$ . ~/terminal.sh; show 60 corralctl list
  ID   AGENT STATE   ACTIVITY SINCE WORKSPACE
● gone sh    failed  exit 3   …s    ~/src/shop
  wide bash  running working  …s    …-on-and-on/漢字漢字漢字
2 sessions, 1 failed.…

$ . ~/terminal.sh; show 40 corralctl list --plain --no-legend
gone sh   failed  exit 3  …s ~/src/shop
wide bash running working …s …字漢字漢字

# A shortened id keeps its beginning, which still names it.
$ corralctl run -q --no-start --id an-id-that-goes-on-and-on-for-forty-bytes -- true; . ~/terminal.sh; show 60 corralctl list 'an-id*'; corralctl rm -q 'an-id*'
  ID                  AGENT STATE   ACTIVITY SINCE WORKSPACE
  an-id-that-goes-on… true  created -        …s    …src/shop
1 session.…

$ . ~/terminal.sh; show 60 corralctl status wide --no-pager | head -4
● wide - wide 漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字…
        State: running for …s
     Activity: working
        Agent: command

$ . ~/terminal.sh; show 60 corralctl status wide --no-pager | tail -4
               └─… 'title \x1b[31m 漢字' 1000
bold
漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢…
ready

# Colours are for terminals, and for users who want them.
$ . ~/terminal.sh; e=e; show 60 corralctl list gone --no-legend | od -An -c | tr -d ' \n' | cut -c1-40
033[1m033[31m342227217…
$ . ~/terminal.sh; e=e; show 60 NO_COLOR=1 corralctl list gone --no-legend
● gone sh failed exit 3 …s ~/src/shop

# While an operation takes long, the terminal shows what it waits for, and erases that afterwards.
$ for i in 1 2; do corralctl run -q --id stubborn-$i -- sh -c 'trap "" TERM HUP; echo ready; while :; do sleep 100; done'; until corralctl peek stubborn-$i | grep -q ready; do :; done; done
$ . ~/terminal.sh; t -f /dev/null new-session -d -x 60 -y 10 "corralctl stop --yes --timeout=3s 'stubborn-*'; echo THE END; exec sleep 1000"; until t capture-pane -p | grep Stopping; do :; done
Stopping 2 sessions (…s): stubborn-1, stubborn-2
$ . ~/terminal.sh; until t capture-pane -p | grep 'THE END'; do :; done; t capture-pane -p | grep -c Stopping; t kill-server
THE END
0
