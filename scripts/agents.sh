#!/bin/bash
# agents.sh [all]: fetches the agents that Corral is tried with, those of e2e/agents/package.json, and prints where they are. Without "all", only those
# that every change is tried with. They are kept outside of the tree: below $XDG_CACHE_HOME where that is set, else for the whole machine if root asks,
# whose own cache the tests could not enter, and in ~/.cache for everybody else.
set -eu
cd "$(dirname "$0")/../e2e/agents"

which=${1:-some}
omit=()
[ "$which" = all ] || omit=(--omit=dev)

cache=${XDG_CACHE_HOME:-}
[ -n "$cache" ] || { [ "$(id -u)" = 0 ] && cache=/var/cache; } || cache=$HOME/.cache
dir=$cache/corral-agents/$which-$(cat package.json package-lock.json | sha256sum | cut -c1-12)
mkdir -p "$cache/corral-agents"
exec 9>"$dir.lock"
flock 9 # by one at a time; what was only half fetched has another name
if [ ! -d "$dir" ]; then
  rm -rf "$dir.new"
  mkdir "$dir.new"
  cp package.json package-lock.json "$dir.new"
  # Not `npm ci`: it insists on packages for other machines too. Their scripts are not run: the platforms' own programs need none.
  if ! (cd "$dir.new" && npm install --no-save --ignore-scripts --no-audit --no-fund --loglevel=error "${omit[@]}") >"$dir.log" 2>&1 </dev/null; then
    echo "agents.sh: npm cannot fetch the agents:" >&2
    tail -n 20 "$dir.log" >&2
    exit 1
  fi
  chmod -R a+rX "$dir.new"
  mv "$dir.new" "$dir"
fi
# Those of other versions are not needed again.
for old in "$cache/corral-agents/$which"-*; do
  case $old in "$dir"*) ;; *) rm -rf "$old" ;; esac
done
echo "$dir"
