# Help of a verb is complete: what it takes, its options, and examples.

$ corralctl help suspend
corralctl suspend ID…

Stop sessions, to be resumed.
...

$ corralctl linger --help
corralctl linger [on|off]

Tell or choose whether sessions go on when you log out.

Options of every verb:
...
Examples:
  corralctl linger     # on or off?
  corralctl linger on  # sessions go on when you log out

$ corralctl help | tail -3
An ID may be the beginning of one, or a pattern such as 'fix-*'.
Exit codes: …
More: corralctl help VERB, man corralctl

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
corralctl: completion takes one shell: bash, zsh, fish or powershell
hint: corralctl help completion
[exit 2]

$ corralctl completion tcsh
corralctl: invalid shell "tcsh": expected bash, zsh, fish or powershell
hint: corralctl help completion
[exit 2]

# What completes is not in it.
$ corralctl help | grep -c __complete
0
[exit 1]
