# A verb that affects several sessions which were not named one by one asks first on a terminal;
# elsewhere it acts at once.

$ for i in 1 2 10; do corralctl run -q --id try-$i -- sleep 1000; done; corralctl run -q --id keep -- true; corralctl wait keep
$ cat >~/tty.sh <<'END'
> tty() { answer=$1; shift; echo "$answer" | script -E never -qec "$*" /dev/null | tr -d '\r'; }
> END

$ . ~/tty.sh; tty n corralctl rm --all
  keep   completed
  try-1  running
  try-10 running
  try-2  running
Remove 4 sessions (3 running)? [y/N] Aborted.

$ . ~/tty.sh; tty n "corralctl stop 'try-*'; echo \$?"
  try-1  running
  try-10 running
  try-2  running
Stop 3 sessions (3 running)? [y/N] Aborted.
1

$ . ~/tty.sh; tty n corralctl kill -s HUP --all; tty n corralctl restart --all; tty n corralctl archive --all
  try-1  running
  try-10 running
  try-2  running
Signal 3 sessions (3 running)? [y/N] Aborted.
  try-1  running
  try-10 running
  try-2  running
Restart 3 sessions (3 running)? [y/N] Aborted.
  keep completed
Archive 1 session? [y/N] Aborted.

# The output names what was done.
$ . ~/tty.sh; tty y "corralctl stop 'try-1*'"; corralctl list --no-legend --columns=id,state
  try-1  running
  try-10 running
Stop 2 sessions (2 running)? [y/N] try-1
try-10
keep   completed
try-1  stopped
try-2  running
try-10 stopped

# Sessions that were named one by one are not confirmed. --yes and --force answer in advance.
$ . ~/tty.sh; tty n corralctl rm try-1 try-10; corralctl list --no-legend --columns=id; tty n corralctl stop --all --yes; tty n corralctl rm -f "'*'"
keep
try-2
keep
try-2
keep
try-2

# Without a terminal there is no question, and no other output.
$ for i in 1 2; do corralctl run -q --id try-$i -- sleep 1000; done; corralctl stop --all && corralctl rm --all && corralctl list
0 sessions. Lingering is off.

# Without sessions, list on a terminal shows how to create one.
$ . ~/tty.sh; tty n corralctl --no-pager
0 sessions. Lingering is off.
corralctl run AGENT, or corralctl run -- COMMAND, starts one in this directory.
