#!/bin/bash
# agents.sh [some|all|codex]: fetches the agents that Corral is tried with and prints where they are: those of e2e/agents/package.json in the versions and
# with the checksums of its lock file. "some", the default, are those that every change is tried with; "codex" is the one of the demo. They are kept outside of the tree: below $XDG_CACHE_HOME where that is set, else for the whole machine if root asks,
# whose own cache the tests could not enter, and in ~/.cache for everybody else.
set -eu
cd "$(dirname "$0")/../e2e/agents"

which=${1:-some}
# shellcheck disable=SC2016 # the dollar signs are JavaScript's
one_of_them='
  const fs = require("fs"), [name, to] = process.argv.slice(1), read = (file) => JSON.parse(fs.readFileSync(file));
  const lock = read("package-lock.json"), entry = `node_modules/${name}`, dependencies = {[name]: read("package.json").dependencies[name]};
  lock.packages = {"": {dependencies}, [entry]: lock.packages[entry]};
  fs.writeFileSync(`${to}/package.json`, JSON.stringify({private: true, dependencies}));
  fs.writeFileSync(`${to}/package-lock.json`, JSON.stringify(lock));'
npm_ci=(npm ci --ignore-scripts --no-audit --no-fund --loglevel=error)
[ "$which" = all ] || npm_ci+=(--omit=dev)
# Whoever runs the demo without a network does not wait for many tries.
[ "$which" != codex ] || npm_ci+=(--fetch-retries=1 --fetch-retry-mintimeout=1000 --fetch-retry-maxtimeout=5000)
umask 022 # users without rights run them

cache=${XDG_CACHE_HOME:-}
[ -n "$cache" ] || { [ "$(id -u)" = 0 ] && cache=/var/cache; } || cache=$HOME/.cache
dir=$cache/corral-agents/$which-$(cat package.json package-lock.json | sha256sum | cut -c1-12)
mkdir -p "$cache/corral-agents"
exec 9>"$dir.lock"
flock 9 # by one at a time; what was only half fetched has another name
if [ ! -d "$dir" ]; then
  rm -rf "$dir.new"
  mkdir "$dir.new"
  if [ "$which" = codex ]; then
    # The same files with this one alone, which depends on nothing else.
    node -e "$one_of_them" @openai/codex "$dir.new"
  else
    cp package.json package-lock.json "$dir.new"
  fi
  # Scripts of packages are not run: the platforms' own programs need none.
  if ! (cd "$dir.new" && "${npm_ci[@]}") >"$dir.log" 2>&1 </dev/null; then
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
