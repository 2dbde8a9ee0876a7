# An agent is run with several accounts: instances of a template. This one keeps each conversation in
# a file of its own, in the directory of the account.

$ mkdir -p ~/config/corral/agents ~/config/corral/accounts ~/bin && chmod 755 ~/config/corral/accounts
$ printf '#!/bin/sh\necho "$2 $KEY in $TALKER_HOME"; echo "$2" >>"$TALKER_HOME/$1"; exec sleep 1000\n' >~/bin/talker && chmod +x ~/bin/talker
$ printf '[Agent]\nDescription=Talks\nCommand=%s/bin/talker %%U begins\nResumeCommand=%s/bin/talker %%U continues\nIdSource=preset\n' ~ ~ >~/config/corral/agents/talker.agent
$ printf '[Agent]\nResumeCondition=${TALKER_HOME}/%%U\n[Environment]\nSet=TALKER_HOME=%%h/talker-%%I\nCreateDirectory=%%h/talker-%%I\nEnvironmentFile=-%%E/corral/accounts/%%I.env\n' >~/config/corral/agents/talker@.agent
$ echo 'KEY=$(touch pwned) `touch pwned`' >~/config/corral/accounts/work.env; chmod 644 ~/config/corral/accounts/work.env; corralctl reload

# A file that others can read is not used, and nothing is started. So is one with an invalid line.
$ corralctl run talker@work; corralctl list
corralctl: cannot use the environment file: ~/config/corral/accounts/work.env is a file of mode 0644, expected a file that only this user can access; run: chmod 600 ~/config/corral/accounts/work.env
0 sessions. …
$ corralctl doctor | grep ' accounts '
note  accounts       cannot use the environment file: ~/config/corral/accounts/work.env is a file of mode 0644, expected a file that only this user can access; run: chmod 600 ~/config/corral/accounts/work.env

$ chmod 600 ~/config/corral/accounts/work.env; (umask 077; printf 'KEY=home\nsecret\n' >~/config/corral/accounts/home.env; touch ~/config/corral/accounts/Home.env)
$ corralctl run talker@home
corralctl: cannot use the environment file ~/config/corral/accounts/home.env: line 2 is not NAME=VALUE
[exit 1]
$ corralctl doctor | grep -A1 ' accounts ' | head -4
note  accounts       ~/config/corral/accounts/Home.env: invalid name of an account "Home", ignored
                     -> rename it
note  accounts       cannot use the environment file ~/config/corral/accounts/home.env: line 2 is not NAME=VALUE
ok    accounts       work
$ echo KEY=home >~/config/corral/accounts/home.env

# The variables of an account are its own, those of the shell do not replace them; no shell reads the
# file. The scopes of an account have limits of their own, besides those of the agent.
$ mkdir -p $XDG_RUNTIME_DIR/systemd/user/app-corral-talker-.scope.d $XDG_RUNTIME_DIR/systemd/user/app-corral-talker-:work-.scope.d
$ printf '[Scope]\nTasksMax=90\n' >$XDG_RUNTIME_DIR/systemd/user/app-corral-talker-.scope.d/limits.conf; printf '[Scope]\nTasksMax=80\n' >$XDG_RUNTIME_DIR/systemd/user/app-corral-talker-:work-.scope.d/limits.conf; systemctl --user daemon-reload
$ export KEY=shell TALKER_HOME=/nonexistent; corralctl run talker@work; corralctl run talker@home
Started session shop (app-corral-talker-:work-shop.scope).
Started session shop-2 (app-corral-talker-:home-shop-2.scope).
$ systemctl --user show -P TasksMax app-corral-talker-:work-shop.scope app-corral-talker-:home-shop-2.scope
80

90
$ corralctl list --no-legend
shop   talker@work running …
shop-2 talker@home running …
$ until [ -s ~/talker-work/* -a -s ~/talker-home/* ]; do sleep 0.1; done; corralctl logs shop; corralctl logs shop-2
begins $(touch pwned) `touch pwned` in ~/talker-work
begins home in ~/talker-home
$ ls ~/src/shop ~/pwned
ls: cannot access '~/pwned': No such file or directory
~/src/shop:
[exit 2]
$ corralctl why --environment shop | grep -E '^(KEY|TALKER_HOME) '
KEY …file
TALKER_HOME …definition

# Each session continues its own conversation, with its account.
$ corralctl suspend shop shop-2 && corralctl resume shop shop-2; until grep -q continues ~/talker-work/* && grep -q continues ~/talker-home/*; do sleep 0.1; done; ls ~/talker-work ~/talker-home | wc -l; corralctl show -P Resumed shop shop-2
5
yes

yes
$ corralctl logs shop | tail -1; corralctl logs shop-2 | tail -1
continues $(touch pwned) `touch pwned` in ~/talker-work
continues home in ~/talker-home

# A conversation that only another account has is not continued; its id is not in use either.
$ corralctl run -q --id other --conversation $(ls ~/talker-work) talker@home; until corralctl logs other | grep -q in; do sleep 0.1; done; corralctl logs other; corralctl rm -f other
begins home in ~/talker-home

# Accounts that are set up are listed, and can be completed. Another one exists once it is used.
$ corralctl agents | grep -E '^(AGENT|talker)'
AGENT       INSTALLED RESUMES ACCOUNTS COMMAND …
talker      yes       yes     yes      …
talker@home yes       yes     no       …
talker@work yes       yes     no       …
$ corralctl __complete run talker@ 2>/dev/null | grep talker
talker@home	Talks
talker@work	Talks
$ corralctl run --id typo talker@wrok; corralctl run --id new talker@private
corralctl: account "talker@wrok" is not set up, did you mean "talker@work"?
hint: corralctl agents
Started session typo (app-corral-talker-:wrok-typo.scope).
Started session new (app-corral-talker-:private-new.scope).
$ corralctl rm -f typo new; ls -d ~/talker-*
~/talker-home
~/talker-private
~/talker-work
~/talker-wrok

# Names that are none.
$ for name in talker@ talker@../x 'talker@$(id)' talker@%h talker@a@b @work talker@Work shell@work; do corralctl run "$name" 2>&1 | grep -v ^hint; done
corralctl: cannot run "talker@": no such agent
corralctl: cannot run "talker@../x": no such agent
corralctl: cannot run "talker@$(id)": no such agent
corralctl: cannot run "talker@%h": no such agent
corralctl: cannot run "talker@a@b": no such agent
corralctl: cannot run "@work": no such agent
corralctl: cannot run "talker@Work": no such agent
corralctl: cannot run "shell@work": no such agent
$ corralctl run --id talker@work -- true
corralctl: cannot run "true": invalid Id "talker@work": expected …
[exit 1]

# The files of an account, and changes for one account.
$ corralctl cat talker@work | grep '^#' | tr '#' ':'
: ~/config/corral/agents/talker.agent
: ~/config/corral/agents/talker@.agent
$ printf '#!/bin/sh\nprintf "[Environment]\\nSet=MODEL=small-%%%%I\\n[Scope]\\nRuntimeMaxSec=2h\\n" >"$1"\n' >~/bin/editor && chmod +x ~/bin/editor
$ EDITOR=~/bin/editor corralctl edit talker@work && corralctl restart shop && systemctl --user show -P RuntimeMaxUSec app-corral-talker-:work-shop.scope && tr '\0' '\n' </proc/$(corralctl show -P MainPID shop)/environ | grep MODEL
Wrote ~/config/corral/agents/talker@work.agent.d/override.conf.
2h
MODEL=small-work
$ ln -s /dev/null ~/config/corral/agents/talker@home.agent && corralctl reload && corralctl run talker@home
corralctl: cannot run "talker@home": no such agent
hint: corralctl run talker@work
[exit 1]
$ rm -r $XDG_RUNTIME_DIR/systemd/user/app-corral-talker-*.scope.d
