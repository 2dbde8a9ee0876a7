# cat shows the files that define an agent. edit changes the definition in a drop-in of the user;
# the daemon reads it at once.

$ corralctl cat nonesuch
corralctl: cannot show "nonesuch": no such agent
hint: corralctl agents
[exit 1]

$ corralctl edit nonesuch
corralctl: cannot edit "nonesuch": no such agent
hint: corralctl edit --full nonesuch
[exit 1]

# An editor is a program that changes a file: these write a given text.
$ mkdir ~/bin && printf '#!/bin/sh\nprintf "$TEXT" >"$1"\n' >~/bin/write && printf '#!/bin/sh\ncat "$1"\n' >~/bin/read && chmod +x ~/bin/*

$ VISUAL=~/bin/write TEXT='[Agent]\nDescription=Says things\nCommand=echo hello\n' corralctl edit --full sayer && corralctl agents | grep sayer
Wrote ~/config/corral/agents/sayer.agent.
sayer …echo hello …Says things

$ EDITOR='~/bin/nonesuch' VISUAL= corralctl edit sayer
corralctl: cannot edit "sayer": the editor …
[exit 1]

$ EDITOR=~/bin/read corralctl edit sayer | sed 's/^#/|#/'


|### Edits below this comment will be discarded; those above are saved to ~/config/corral/agents/sayer.agent.d/override.conf

|### ~/config/corral/agents/sayer.agent
|# [Agent]
|# Description=Says things
|# Command=echo hello
Nothing was written, ~/config/corral/agents/sayer.agent.d/override.conf is not created.

$ EDITOR=~/bin/write TEXT='[Agent]\nComand=echo\n[Scope]\nMemoryMaxx=1G\n' corralctl edit sayer
corralctl: cannot edit "sayer": ~/config/corral/agents/sayer.agent.d/override.conf:2: unknown key Comand= in section [Agent], ignored; ~/config/corral/agents/sayer.agent.d/override.conf:4: unknown unit property "MemoryMaxx"; known are: …
[exit 1]

$ EDITOR=~/bin/write TEXT='[Agent]\nDescription=Says it twice\n\n### Edits below this comment will be discarded\n# [Agent]\n' corralctl edit sayer && corralctl agents | grep sayer
Wrote ~/config/corral/agents/sayer.agent.d/override.conf.
sayer …echo hello …Says it twice

$ corralctl cat sayer | sed 's/^#/|#/'
|# ~/config/corral/agents/sayer.agent
[Agent]
Description=Says things
Command=echo hello

|# ~/config/corral/agents/sayer.agent.d/override.conf
[Agent]
Description=Says it twice

# Changes that cannot be saved are not lost.
$ mkdir ~/tmp && chmod 500 ~/config/corral/agents/sayer.agent.d && EDITOR=~/bin/write TMPDIR=~/tmp TEXT='[Agent]\nDescription=Much work\n' corralctl edit sayer; cat ~/tmp/corralctl-edit-*/sayer.conf; chmod 700 ~/config/corral/agents/sayer.agent.d
corralctl: cannot edit "sayer": …: permission denied; your changes are kept in ~/tmp/corralctl-edit-…/sayer.conf
[Agent]
Description=Much work

# Ctrl-C is for the editor.
$ printf '#!/bin/sh\ntrap : INT\necho editing\nuntil read line; do echo interrupted; done\n' >~/bin/patient && chmod +x ~/bin/patient && t() { tmux -S ~/terminal "$@"; } && see() { until t capture-pane -p | grep -q "$1"; do :; done; } && t -f /dev/null new-session -d 'TMPDIR=~/tmp VISUAL=~/bin/patient corralctl edit sayer; echo code $?; exec sleep 1000' && see editing && t send-keys C-c && see interrupted && t send-keys Enter && see 'code 0'; t kill-server; ls ~/tmp | wc -l
1

$ EDITOR=true corralctl edit sayer
~/config/corral/agents/sayer.agent.d/override.conf is unchanged.

$ EDITOR=~/bin/write TEXT='' corralctl edit sayer && corralctl agents | grep sayer && ls ~/config/corral/agents
Removed ~/config/corral/agents/sayer.agent.d/override.conf.
sayer …echo hello …Says things
sayer.agent

# An agent needs a command.
$ EDITOR=~/bin/write TEXT='[Agent]\nDescription=x\n' corralctl edit --full sayer
corralctl: cannot edit "sayer": ~/config/corral/agents/sayer.agent: agent has no Command=; nothing was changed
[exit 1]

# On a terminal, edit asks what to do about a mistake.
$ EDITOR=~/bin/write TEXT='[Agent]\nCommand=echo 2\nNonsense=1\n' script -E never -qec 'corralctl edit --full sayer' /dev/null <<. | tr -d '\r'
> c
> .
~/config/corral/agents/sayer.agent:3: unknown key Nonsense= in section [Agent], ignored

[E]dit again, [s]ave it as it is, or [c]ancel? corralctl: cannot edit "sayer": canceled, nothing was changed

$ corralctl cat sayer command | sed 's/^#/|#/'
|# ~/config/corral/agents/sayer.agent
[Agent]
Description=Says things
Command=echo hello
|# agent command is built in: it runs the given command and has no file
