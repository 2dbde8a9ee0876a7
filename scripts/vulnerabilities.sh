#!/bin/bash
# vulnerabilities.sh: searches the programs with govulncheck for calls of code with a known
# vulnerability. It needs the Go project's database, or the one that VULNDB names. If that does not
# respond within five seconds, as on a machine without network access, it prints a message and
# succeeds.
set -u -o pipefail
cd "$(dirname "$0")/.." || exit

# Built first, because the timeout is for the database only.
tool=$(go tool -modfile=tools/go.mod -n govulncheck) || exit 1
check=("$tool")
[ -z "${VULNDB-}" ] || check+=(-db "$VULNDB")
timeout 5 "${check[@]}" -version 2>/dev/null | grep -q '^DB updated' || {
  echo 'govulncheck: the database of vulnerabilities cannot be reached: not searched for'
  exit 0
}
found=$("${check[@]}" ./... 2>&1) || {
  printf '%s\n' "$found" >&2
  exit 1
}
