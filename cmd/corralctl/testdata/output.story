# The output of an agent is plain text when it reaches a person's terminal; input reaches the agent
# unchanged.

$ corralctl run --id paint --wait -- printf '\033[31mred\033[0m\033]0;title\007 %s|%s|%s|%s\n' 'a  b' '' '$HOME "x"' 'two
> lines'
Started session paint (app-corral-command-paint.scope).

$ corralctl logs paint
red a  b||$HOME "x"|two
lines

$ corralctl logs --raw paint | od -c | head -1
0000000 033   [   3   1   m   r   e   d 033   [   0   m 033   ]   0   ;

$ corralctl logs -n 1 paint
lines

# The matching lines, with session and time.
$ corralctl logs --grep 'A +B' paint
[exit 1]

$ corralctl logs -g '(?i)A +B' paint
paint 20…-…-… …:…:… red a  b||$HOME "x"|two

$ corralctl archive paint && corralctl logs -a --grep '^lines$' && corralctl logs -a --grep nowhere -j
paint 20…-…-… …:…:… lines
[]
[exit 1]

$ corralctl logs paint --grep '^lines$' -j
[{"Id":"paint","Time":1…,"Line":"lines"}]

$ corralctl logs --grep '[a-' paint
corralctl: invalid value "[a-" for --grep: missing closing ]: `[a-`
hint: corralctl help logs
[exit 2]

$ corralctl logs -f --grep lines paint
corralctl: --grep excludes --follow, --raw and --journal
hint: corralctl help logs
[exit 2]

# An argument with shell characters is not run as a shell command.
$ corralctl run --id noshell --wait -- 'echo x; true'
corralctl: cannot run "echo x; true": command "echo x; true" not found in PATH=…
[exit 1]

# Input is submitted as a whole.
$ corralctl run --id reader -- sh -c 'read -r line; echo "got: $line"'
Started session reader (app-corral-command-reader.scope).

$ corralctl send reader 'some  text $HOME' && corralctl wait reader
$ corralctl peek reader | grep got
got: some  text $HOME

# The environment is the caller's, without what belongs to the caller's terminal, and with what was
# set.
$ FOO=bar TERM_PROGRAM=x TMUX=y corralctl run --id env -E BAZ='a b' -E LANG --wait -- sh -c 'echo "$FOO|$BAZ|${TERM_PROGRAM-unset}"'
Started session env (app-corral-command-env.scope).
$ corralctl logs env
bar|a b|unset

# If the reader of logs -f is gone, it exits at once, without waiting for more output.
$ corralctl run -q --id still -- sh -c 'echo once; exec sleep 1000'; until corralctl logs still | grep -q once; do :; done; corralctl logs -f still | head -1
once
