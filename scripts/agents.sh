#!/bin/bash
# agents.sh [some|all|newest|codex]: downloads the agents that Corral is tested with and prints their
# directory. Versions and checksums are those of the lock file in e2e/agents. "some", the default,
# are the agents that every change is tested with; "codex" is the one of the demo. "newest" are all
# agents in the versions that are published now, without checksums of ours. The directory is outside of the source tree: below $XDG_CACHE_HOME if that is set, else in /var/cache for root,
# because the tests run as another user that cannot enter root's cache, and in ~/.cache for other
# users.
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
# shellcheck disable=SC2016 # the dollar signs are JavaScript's
newest='
  const { execFileSync } = require("child_process"), pinned = JSON.parse(require("fs").readFileSync("package.json"));
  const all = {...pinned.dependencies, ...pinned.devDependencies};
  for (const [name, version] of Object.entries(all)) {
    if (name.startsWith("node-")) continue; // of the line that the agents require
    const platform = version.replace(/^[0-9.]+/, ""); // such as -linux-x64
    const published = execFileSync("npm", ["view", name, "version"], {encoding: "utf8"}).trim() + platform;
    if (published === version) continue;
    const fs = require("fs"), empty = fs.mkdtempSync(require("os").tmpdir() + "/agents-");
    try { // what it depends on may not be published yet
      execFileSync("npm", ["install", "--dry-run", "--ignore-scripts", `${name}@${published}`], {cwd: empty, stdio: "ignore"});
      all[name] = published;
    } catch {
      console.error(`agents.sh: ${name} ${published} cannot be installed: ${version} is tested instead`);
    } finally {
      fs.rmSync(empty, {recursive: true});
    }
  }
  console.log(JSON.stringify({private: true, dependencies: all, overrides: pinned.overrides}));'
npm_ci=(npm ci --ignore-scripts --no-audit --no-fund --loglevel=error)
[ "$which" = all ] || npm_ci+=(--omit=dev)
packages=$(cat package.json package-lock.json)
if [ "$which" = newest ]; then
  packages=$(node -e "$newest")
  npm_ci[1]=install
fi
# Without network access, the demo should not wait for many retries.
[ "$which" != codex ] || npm_ci+=(--fetch-retries=1 --fetch-retry-mintimeout=1000 --fetch-retry-maxtimeout=5000)
umask 022 # unprivileged users run them

cache=${XDG_CACHE_HOME:-}
[ -n "$cache" ] || { [ "$(id -u)" = 0 ] && cache=/var/cache; } || cache=$HOME/.cache
dir=$cache/corral-agents/$which-$(printf '%s' "$packages" | sha256sum | cut -c1-12)
mkdir -p "$cache/corral-agents"
exec 9>"$dir.lock"
flock 9 # one process at a time; an incomplete download has another name
if [ ! -d "$dir" ]; then
  rm -rf "$dir.new"
  mkdir "$dir.new"
  if [ "$which" = codex ]; then
    # The same files reduced to this package, which has no dependencies.
    node -e "$one_of_them" @openai/codex "$dir.new"
  elif [ "$which" = newest ]; then
    printf '%s' "$packages" >"$dir.new/package.json"
  else
    cp package.json package-lock.json "$dir.new"
  fi
  # Package scripts are not run: the platform-specific programs need none.
  if ! (cd "$dir.new" && "${npm_ci[@]}") >"$dir.log" 2>&1 </dev/null; then
    echo "agents.sh: npm cannot fetch the agents:" >&2
    tail -n 20 "$dir.log" >&2
    exit 1
  fi
  chmod -R a+rX "$dir.new"
  mv "$dir.new" "$dir"
fi
# Older versions are not needed any more.
for old in "$cache/corral-agents/$which"-*; do
  case $old in "$dir"*) ;; *) rm -rf "$old" ;; esac
done
echo "$dir"
