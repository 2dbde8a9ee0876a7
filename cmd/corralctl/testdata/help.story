# The help of a verb lists its arguments, its options, and examples.

$ corralctl help suspend
corralctl suspend ID…
  Stop sessions so that they can be resumed.

Options:
  -a, --all       every session that runs
      --no-block  do not wait until they have ended
  -H, -q: see corralctl help options

Examples:
  corralctl suspend shop  # until: corralctl resume shop

$ corralctl edit --help
corralctl edit AGENT
  Change an agent's definition, in a drop-in file.

Options:
  -l, --full  edit the whole file instead of a drop-in, or make a new agent
  -H, -q: see corralctl help options

Examples:
  corralctl edit claude       # write a drop-in
  corralctl edit --full mine  # make a new agent

$ corralctl help options
Options of every verb:
  -a, --all              every session; with list and top: archived ones too
...

$ corralctl --help | head -3; corralctl --help | tail -7
corralctl [OPTIONS…] [VERB …]

Supervise coding agents under systemd. Without a verb: list.
ID is a session's, any unambiguous prefix of it, or a pattern such as 'fix-*'.

Exit codes: 0 done, 1 refused or failed, 2 usage, 3 session not live (status,
is-active), 4 no such session, 5 corrald cannot be reached. wait and run --wait
exit with the agent's exit code.

More: corralctl help VERB, man corralctl

# Agents that use a shell have a page, below the help of the verb agents.
$ corralctl help agents | sed -n '1p;/directs/p'; corralctl agents --help | sed -n '1p;/directs/p'
corralctl agents
For an agent that starts and directs other agents:
corralctl agents

$ corralctl help nonesuch
corralctl: unknown verb "nonesuch"
hint: corralctl help
[exit 2]

# Completion scripts come from the program itself.
$ for shell in bash zsh fish powershell; do corralctl completion $shell | grep -c '__complete ' >/dev/null && echo $shell; done
bash
zsh
fish
powershell

$ corralctl completion
corralctl: completion: expected one shell: bash, zsh, fish or powershell
hint: corralctl help completion
[exit 2]

$ corralctl completion tcsh
corralctl: invalid shell "tcsh": expected bash, zsh, fish or powershell
hint: corralctl help completion
[exit 2]

# The help does not list the verb that completes.
$ corralctl help | grep -c __complete
0
[exit 1]
