# What run creates, how it is named, and what run prints about it.

# On a terminal, run prints how to attach; a script reads the scope's name.
$ script -qec 'corralctl run -- sleep 1000' /dev/null | tr -d '\r'; script -qec 'corralctl run --no-start -- sleep 1000' /dev/null | tr -d '\r'
Started session shop. Attach: corralctl attach shop
Created session shop-2. Start: corralctl start shop-2

$ corralctl run -- sleep 1000
Started session shop-3 (app-corral-command-shop-3.scope).

# The names of the home directory and of / do not describe the work: a session there is named after
# its program.
$ cd && corralctl run -- sleep 1000; corralctl run --dir / -- /bin/sleep 1000; cd src && corralctl run -- sleep 1000
Started session sleep (app-corral-command-sleep.scope).
Started session sleep-2 (app-corral-command-sleep-2.scope).
Started session src (app-corral-command-src.scope).

$ printf '[Agent]\nCommand=sleep 1000\n' >>~/mine && mkdir -p ~/config/corral/agents && mv ~/mine ~/config/corral/agents/mine.agent && corralctl reload && cd && corralctl run mine
Started session mine (app-corral-mine-mine.scope).
