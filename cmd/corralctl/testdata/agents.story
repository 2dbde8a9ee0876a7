# An agent is defined in a file; the user's arguments follow those of the definition. Limits apply
# before its first instruction.

$ mkdir -p ~/config/corral/agents && printf '[Agent]\nDescription=Says things\nCommand=echo hello\n' >~/config/corral/agents/sayer.agent && corralctl reload

$ corralctl agents | grep sayer
sayer …yes …no …echo hello …Says things

$ corralctl run --wait --id said sayer -- 'a  b' '' '$HOME' && corralctl logs said
Started session said (app-corral-sayer-said.scope).
hello a  b  $HOME

$ corralctl run --id limited -p TasksMax=100 -p CPUQuota=50% -p RuntimeMaxSec='5min 20s' -p OOMPolicy=kill -- sleep 1000
Started session limited (app-corral-command-limited.scope).

$ systemctl --user show app-corral-command-limited.scope -p TasksMax,CPUQuotaPerSecUSec,RuntimeMaxUSec,OOMPolicy | sort
CPUQuotaPerSecUSec=500ms
OOMPolicy=kill
RuntimeMaxUSec=5min 20s
TasksMax=100

# A description and labels that the user gives a session.
$ corralctl describe said 'it said so' && corralctl label said team=web stage=test && corralctl label said stage- && corralctl enable -q said
$ corralctl show -p Description,Labels,OnLogin said
Description=it said so
Labels=team=web
OnLogin=resume

$ corralctl archive said && corralctl list --no-legend --state=archived && corralctl start said
said sayer archived - …s ~/src/shop
corralctl: cannot start "said": it is archived
hint: corralctl status said
[exit 1]

# The workspace is the caller's directory, by the name by which the caller knows it.
$ ln -s ~/src/shop ~/link && cd ~/link && corralctl run -q --id linked --no-start -- true && corralctl show -P WorkingDirectory linked
~/link
