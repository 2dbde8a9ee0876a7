#!/bin/bash
# vulnerabilities.sh: has govulncheck search the programs for calls of code with a known vulnerability. It needs the Go project's database of them, or the
# one that VULNDB names. Where that does not answer within five seconds, as on a machine without network, one line says so, and that is no failure.
set -u -o pipefail
cd "$(dirname "$0")/.." || exit

# Built first, since the time is for the database alone.
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
