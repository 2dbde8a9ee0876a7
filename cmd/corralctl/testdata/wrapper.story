# A sandbox profile with the command of another tool, Wrapper=: it is put before the agent's command,
# with its specifiers replaced.

$ mkdir -p ~/config/corral/sandboxes && cd ~/config/corral/sandboxes && printf '[Sandbox]\nWrapper=env SEES=%%w,%%i nice --adjustment=5\nUnset=SECRET*\n' >tool.sandbox && printf '[Sandbox]\nWrapper=no-such-tool --\n' >missing.sandbox && corralctl reload

$ corralctl run --id one --sandbox=tool -E SECRET_KEY=x --wait -- sh -c 'echo $SEES $(nice) ${SECRET_KEY-unset} $CORRAL_SANDBOX; exit 3'; corralctl logs one
Started session one (app-corral-command-one.scope).
~/src/shop,one 5 unset tool

# The status shows the agent's command, and the tool.
$ corralctl status one --lines=0 | grep -e Command -e Sandbox -e Reason
       Reason: command exited with code 3
      Command: sh -c 'echo $SEES $(nice) ${SECRET_KEY-unset} $CORRAL_SANDBOX; exit 3'
      Sandbox: env, tool

# What is run has to be installed: the tool, which finds the agent in its sandbox.
$ corralctl run --sandbox=missing -- true
corralctl: cannot run "true": command "no-such-tool" not found in PATH=…
[exit 1]

$ corralctl run --id two --sandbox=tool --wait -- only-in-the-image; echo $?; corralctl logs two
Started session two (app-corral-command-two.scope).
127
nice: …only-in-the-image…: No such file or directory

$ corralctl run --id three --sandbox=missing --no-start -- true; corralctl start three
Created session three.
corralctl: cannot start "three": command "no-such-tool" not found
hint: corralctl status three
[exit 1]
