package main

// agentHelp is the page for agents that use corralctl in a shell, which help prints below the help
// of the verb agents.
const agentHelp = `For an agent that starts and directs other agents:

Each session runs one agent in a terminal of its own. The sessions that you
create are your children. You may see all sessions, but control only your own
one and your descendants; other calls fail with "cannot be controlled".

  corralctl agents                       the agents that you can run
  corralctl run AGENT --id ID --worktree --prompt 'TEXT'
                                         start one, in a git worktree of its own
  corralctl run --id ID -- COMMAND       run a command in the same way
  corralctl list --tree                  all sessions; --json for a program
  corralctl wait --until=waiting,turn-ended --timeout=10min ID
                                         until it asks or has finished its turn;
                                         124: not within that time
  corralctl status --json ID             state, question, result; null: unknown
  corralctl peek ID                      what is on its screen now
  corralctl logs -n 50 ID                what it has printed
  corralctl diff ID                      what it has changed in its worktree
  corralctl send ID 'TEXT'               type a text and press Enter
  corralctl stop ID                      end it; rm ID also removes the record
  corralctl report waiting --message='TEXT'
                                         tell the user that you need an answer

Without --until, wait ends with the session, and exits with its exit code. An
agent that has finished a turn does not end: it waits for the next text.
Permissions are for the user to grant: approve and deny are refused to agents.
Use --id and --timeout always. Quote the text. Exit codes: corralctl --help.

Three at once, and what they have done:

  for part in api web docs; do
    corralctl run -q claude --id $part --worktree=$part --prompt "Test $part"
  done
  corralctl wait --until=waiting,turn-ended --timeout=30min api web docs
  for part in api web docs; do corralctl diff $part; done
  corralctl stop api web docs
`
