# An agent that keeps its conversations in files, by an id that it is given.
$ mkdir -p ~/config/corral/agents ~/talks && printf 'exec sleep 1000\n' >~/talk
$ printf '[Agent]\nCommand=sh %%h/talk --session-id %%U\nResumeCommand=sh %%h/talk --resume %%U\nResumeCondition=%%h/talks/%%U\nIdSource=preset\n' >~/config/corral/agents/talker.agent && corralctl reload

# Arguments after its name are for its fresh runs.
$ corralctl run -q --id shop talker -- --model 'a b' && corralctl show -p Command --value shop
sh …/talk --session-id … --model 'a b'

# It resumes if it has saved something, and starts a new conversation otherwise.
$ corralctl suspend shop && corralctl resume shop && corralctl show -p Resumed --value shop
shop: no conversation was saved yet; starting a new one.
no
$ corralctl show -p ConversationId --value shop >~/id && touch ~/talks/"$(cat ~/id)" && corralctl suspend shop && corralctl resume shop && corralctl show -p Resumed --value shop
yes

$ corralctl status -n0 shop | grep Conversation
 Conversation: …-…-…-…-…

# Only one process can use a conversation.
$ corralctl run --id other --conversation "$(cat ~/id)" talker
corralctl: cannot run "talker": conversation "…" is in use by session "shop"
hint: corralctl attach shop
[exit 1]
$ corralctl stop shop && corralctl run -q --id other --conversation "$(cat ~/id)" talker && corralctl show -p Resumed --value other
yes
$ corralctl resume shop
corralctl: cannot resume "shop": conversation "…" is in use by session "other"
hint: corralctl attach other
[exit 1]

# A copy of a conversation, by an agent that can make one.
$ corralctl run --fork shop
corralctl: cannot fork session "shop": the definition of agent "talker" has no ForkCommand=; see corral.agent(5)
[exit 1]
$ printf 'ForkCommand=sh %%h/talk --fork %%F %%U\n' >>~/config/corral/agents/talker.agent && corralctl reload && git init -q . && git -c user.name=A -c user.email=a@b commit -q --allow-empty -m first
$ corralctl run --fork shop --worktree=idea
Started session idea (app-corral-talker-idea.scope).
$ corralctl status -n0 idea | grep 'Workspace\|Forked'
    Workspace: ~/.local/share/corral/worktrees/idea
  Forked from: shop
$ corralctl run --fork shop -q --id again -- --model x && corralctl show -p Command --value again
sh …/talk --session-id … --model x
$ corralctl run --fork nobody
corralctl: cannot run "nobody": no such session
[exit 4]
$ corralctl run --fork shop --conversation x
corralctl: --fork and --conversation exclude each other
hint: corralctl help run
[exit 2]
$ corralctl run --fork idea -q --id early
corralctl: cannot start "early": cannot copy conversation …: it was not saved
hint: corralctl status early
[exit 1]

# A definition that cannot work is reported with file and line.
$ printf '[Agent]\nComand=sh\nCommand=sh %%h/talk %%U\n' >~/new && EDITOR="cp $HOME/new" corralctl edit --full talker
corralctl: cannot edit "talker": …/talker.agent:2: unknown key Comand= in section [Agent], ignored; …/talker.agent:3: Command= has %U, which is unknown before the agent runs unless IdSource= is preset, history-file or create; nothing was changed
[exit 1]
$ printf '[Agent]\nIdSource=create\n' >~/new && EDITOR="cp $HOME/new" corralctl edit talker
corralctl: cannot edit "talker": …/talker.agent.d/override.conf:2: IdSource=create requires IdCommand=; nothing was changed
[exit 1]
