#!/bin/bash
# demo.sh: builds Corral, starts it on a real systemd, runs real programs as sessions, shows how
# each one ended, and cleans up.
#
# It uses the systemd of the user who runs it. If none is running (in a container), or if Corral is
# already installed there, it uses a private one with its own bus, home and control groups. The
# script runs twice: outside it builds and selects the systemd, inside it shows the sessions.
set -u -o pipefail
self=$(cd "$(dirname "$0")" && pwd)/${0##*/}
bus=io.github.corrald.Corral1

if [ -t 1 ]; then bold=$'\e[1m' plain=$'\e[0m'; else bold='' plain=''; fi
heading() { printf '\n%s== %s%s\n' "$bold" "$*" "$plain"; }
# show COMMAND...: prints and runs the command. Its status is the command's.
show() {
  printf '%s$ %s%s\n' "$bold" "${*@Q}" "$plain" | sed "s/'\([A-Za-z0-9_./:=@-]\{1,\}\)'/\1/g"
  "$@"
}
give_up() {
  printf 'demo: %s\n' "$*" >&2
  exit 1
}

# --- outside --------------------------------------------------------------------------------------

# own_systemd: succeeds if the user's own systemd is running without Corral.
own_systemd() {
  local owned
  if ! owned=$(busctl --user call org.freedesktop.DBus /org/freedesktop/DBus org.freedesktop.DBus NameHasOwner s $bus 2>/dev/null) ||
    ! systemctl --user show-environment >/dev/null 2>&1; then
    why='No systemd user manager runs here'
    return 1
  fi
  if [ "$owned" = 'b true' ] || systemctl --user cat corrald.service >/dev/null 2>&1 || [ -e "$XDG_RUNTIME_DIR/corral" ]; then
    why='Your systemd already has a Corral, which is left alone'
    return 1
  fi
}

outside() {
  cd "$(dirname "$self")/.." || exit 1
  local agent='' why='' status began=$SECONDS
  fetching='' # for the trap, which runs after this function
  tmp=$(mktemp -d "${TMPDIR:-/tmp}/corral-demo.XXXXXX") || exit 1
  trap '[ -z "$fetching" ] || { kill "$fetching" 2>/dev/null && wait "$fetching"; }; rm -rf "$tmp"' EXIT
  trap 'exit 130' INT TERM
  # On a private systemd an unprivileged user has to read these files.
  chmod 755 "$tmp"
  umask 022
  install -m 755 "$self" "$tmp/demo.sh"

  if command -v npm >/dev/null; then
    # This agent shows its first screen without an account and without network access.
    heading 'Fetching a coding agent with npm, meanwhile (OpenAI Codex, in the version that Corral is tested with, at most 60 s)'
    XDG_CACHE_HOME=$tmp/npm timeout 60 scripts/agents.sh codex >"$tmp/agents" 2>"$tmp/npm.log" </dev/null &
    fetching=$!
  fi

  heading 'Building'
  show make --no-print-directory build || give_up 'cannot build'
  show go build -o "$tmp/usermanager" ./internal/testbed/usermanager || give_up 'cannot build'
  show make --no-print-directory install-files PREFIX="$tmp/usr" || give_up 'cannot install'

  if [ -n "$fetching" ]; then
    wait "$fetching"
    status=$?
    fetching=''
    if [ $status = 0 ]; then
      agent=$(<"$tmp/agents")/node_modules/@openai/codex/vendor/x86_64-unknown-linux-musl/bin/codex
    else
      heading 'npm could not bring the agent in time; the demo continues without it:'
      tail -n 3 "$tmp/npm.log"
    fi
  else
    heading 'npm is not here, so no real coding agent is shown'
  fi

  cd "$tmp" || exit 1
  if own_systemd; then
    heading "Starting Corral on your own systemd ($(systemctl --version | sed -n '1s/ (.*//p')), only for this demo"
    bash demo.sh --inside "$tmp/usr" "$agent"
    status=$?
  else
    heading "$why: taking a private one ($(systemctl --version | sed -n '1s/ (.*//p'))"
    "$tmp/usermanager" -- bash demo.sh --inside "$tmp/usr" "$agent"
    status=$?
  fi
  [ $status = 0 ] || give_up "ended with status $status"
  heading "Done in $((SECONDS - began)) s; nothing was left behind. Your turn: make install-user"
}

# --- inside ---------------------------------------------------------------------------------------

start_daemon() {
  local units=$XDG_RUNTIME_DIR/systemd/user
  mkdir -p "$units/corrald.service.d"
  cp "$prefix"/lib/systemd/user/*.{service,slice} "$units"
  printf '[Unit]\nConditionUser=\n[Service]\nEnvironment=XDG_STATE_HOME=%s\n' "$work/state" >"$units/corrald.service.d/demo.conf"
  show systemctl --user daemon-reload &&
    show systemctl --user start corrald.service
}

clean_up() {
  corralctl stop --all -q >/dev/null 2>&1
  systemctl --user stop corrald.service app-corral.slice >/dev/null 2>&1
  systemctl --user clean --what=runtime corrald.service >/dev/null 2>&1
  rm -rf "$XDG_RUNTIME_DIR"/systemd/user/{corrald.service,corrald.service.d,app-corral.slice} "$work"
  systemctl --user daemon-reload
}

# ended ID EXPECTED: waits until the session has ended, with a timeout, and checks the exit status
# of `corralctl wait`.
ended() {
  local got
  show corralctl wait --timeout 20 "$1"
  got=$?
  echo "  (corralctl wait: $got)"
  [ "$got" = "$2" ] || give_up "session $1: expected $2"
}

# first_screen ID: waits until the agent has drawn something and not changed it for a second, at
# most 20 s.
first_screen() {
  local deadline=$((SECONDS + 20)) before='' screen same=0
  while [ $SECONDS -lt $deadline ] && [ $same -lt 5 ]; do
    sleep 0.2
    screen=$(corralctl peek "$1" 2>/dev/null)
    if [[ $screen =~ [[:alnum:]] && $screen == "$before" ]]; then same=$((same + 1)); else same=0; fi
    before=$screen
  done
}

inside() {
  prefix=$1
  local agent=$2
  PATH=$prefix/bin:$PATH
  work=$(mktemp -d) || exit 1
  export XDG_STATE_HOME=$work/state
  mkdir -p "$work/shop" "$work/codex"
  trap clean_up EXIT
  trap 'exit 130' INT TERM
  cd "$work/shop" || exit 1

  start_daemon || {
    systemctl --user --no-pager --full status corrald.service
    give_up 'corrald does not start'
  }

  heading 'A program that completes'
  show corralctl run --id tests -- sh -c 'echo "12 tests passed"' || give_up 'cannot run'
  ended tests 0

  heading 'One that exits with 3'
  show corralctl run --id build -- sh -c 'echo "cart.go:7: undefined: total"; exit 3' || give_up 'cannot run'
  ended build 3
  show corralctl logs build

  heading 'One that is killed'
  show corralctl run --id stuck -- sleep 1000 || give_up 'cannot run'
  show corralctl kill -s KILL stuck
  ended stuck 137

  heading 'One that starts processes of its own, and lives on'
  show corralctl run --id server -- sh -c 'for n in 1 2 3; do sleep 1000 & done; echo "3 workers"; wait' || give_up 'cannot run'

  if [ -n "$agent" ]; then
    heading 'A real coding agent, and its first screen'
    show corralctl run --id codex -E CODEX_HOME="$work/codex" -- "$agent" --no-daemon || give_up 'cannot run'
    first_screen codex
    show corralctl peek codex
  fi

  heading 'What became of each'
  show corralctl list
  heading 'One of them, in full'
  show corralctl status server
  heading 'The same, as systemd sees it: each session is a scope with a control group of its own'
  show systemctl --user --no-pager --full status app-corral-command-server.scope
  show systemctl --user --no-pager --lines=0 status corrald.service
  heading 'The same, on the bus, where every program can ask'
  show busctl --user --no-pager tree $bus || give_up 'corrald does not reply on the bus'
  local id
  for id in tests build stuck server; do
    show busctl --user get-property $bus /io/github/corrald/Corral1/session/$id $bus.Session State || give_up 'corrald does not reply on the bus'
  done
  show busctl --user get-property $bus /io/github/corrald/Corral1/session/stuck $bus.Session Reason

  heading 'Stopping what still runs: everything in the scope ends, however it was started'
  show corralctl stop server
  show corralctl list
  heading 'Cleaning up'
}

case ${1-} in
  --inside)
    shift
    inside "$@"
    ;;
  *) outside ;;
esac
