# send-keys presses keys, named as in tmux, one after the other.
$ corralctl run -q --id keys -- sh -c 'stty raw -echo; printf ready; head -c 6 | od -An -tx1 >got; exec sleep 1000'; until corralctl peek keys | grep -q ready; do :; done

$ corralctl send-keys keys Escape C-c Down 1 && until grep -qs . got; do :; done; cat got
 1b 03 1b 5b 42 31

# A word that is not the name of a key is not typed into an agent by mistake.
$ corralctl send-keys keys Entr
corralctl: invalid key "Entr": expected a key name of tmux such as Enter, Escape or C-c, or one character
hint: corralctl send-keys keys Enter
[exit 2]

$ corralctl send-keys keys Down 'git push'
corralctl: invalid key "git push": expected a key name of tmux such as Enter, Escape or C-c, or one character
hint: corralctl send-keys --literal keys git push
[exit 2]

$ corralctl send-keys -l keys 'git push' ' now'; corralctl send-keys keys S-Enter
corralctl: cannot send to session "keys": the program in its terminal has not enabled keys such as S-Enter
hint: corralctl status keys
[exit 1]

$ corralctl send-keys; corralctl send-keys keys; corralctl send; corralctl send keys; corralctl send keys three more words; corralctl approve; corralctl deny
corralctl: send-keys: missing ID and KEY
hint: corralctl help send-keys
corralctl: send-keys: missing KEY
hint: corralctl help send-keys
corralctl: send: missing ID and TEXT
hint: corralctl help send
corralctl: send: missing TEXT
hint: corralctl help send
corralctl: send: expected one TEXT, not 3 words: quote the text
hint: corralctl help send
corralctl: approve: missing ID
hint: corralctl help approve
corralctl: deny: missing ID
hint: corralctl help deny
[exit 2]

# A session that has ended accepts no keys.
$ corralctl suspend keys; corralctl send keys hello; corralctl send-keys keys Enter
corralctl: cannot send to session "keys": it is suspended
hint: corralctl send --resume keys …
corralctl: cannot send to session "keys": it is suspended
hint: corralctl resume keys
[exit 1]

$ corralctl stop keys; corralctl run -q --id bad -- sh -c 'exit 3'; corralctl wait -q bad; corralctl send-keys bad Enter
corralctl: cannot send to session "bad": it has failed
hint: corralctl status bad
[exit 1]

# An agent's definition has the keys that answer its requests for permission.
$ mkdir -p ~/config/corral/agents && cat >~/config/corral/agents/fake.agent <<'END' && cat >~/fake <<'END'
> [Agent]
> Command=sh %h/fake
> ApproveKeys=y
> DenyKeys=Escape
> END
> stty raw -echo
> printf '\033]7501;state=blocked:kind=permission:msg=Um0gYnVpbGQ/\033\\May I? '
> key=$(head -c 1 | od -An -tx1)
> printf '\033]7501;state=working\033\\'
> echo "answer:$key" >answer
> exec sleep 1000
> END

$ corralctl reload; corralctl run -q --id shop fake && corralctl wait --until=waiting shop; corralctl approve shop && until grep -qs answer answer; do :; done; cat answer
answer: 79

# Only while it waits for a permission.
$ until corralctl show -P Activity shop | grep -q working; do :; done; corralctl approve shop
corralctl: cannot approve "shop": it does not wait for a permission: its agent is working
hint: corralctl peek shop
[exit 1]

$ rm answer; corralctl stop shop; corralctl start shop && corralctl wait --until=waiting shop; corralctl ack shop; corralctl deny shop && until grep -qs answer answer; do :; done; cat answer
answer: 1b

$ corralctl stop shop; corralctl approve shop
corralctl: cannot answer session "shop": it was stopped
hint: corralctl status shop
[exit 1]

# Only a person may answer, not an agent.
$ corralctl start shop && corralctl wait --until=waiting shop; corralctl run -q --id sneaky -- sh -c 'corralctl approve shop >said 2>&1; setsid corralctl deny shop >>said 2>&1'; corralctl wait -q sneaky; cat said
corralctl: cannot approve "shop": an agent cannot approve or deny anything: process … belongs to session "sneaky"
corralctl: cannot deny "shop": an agent cannot approve or deny anything: process … belongs to session "sneaky"

# For most agents the keys are not known.
$ corralctl run -q --id plain -- sh -c 'printf "\033]7501;state=blocked:kind=permission\033\\"; exec sleep 1000'; corralctl wait --until=waiting plain; corralctl approve plain
corralctl: cannot approve "plain": it cannot be answered: the definition of agent "command" has no ApproveKeys=; answer in its terminal
hint: corralctl attach plain
[exit 1]
