#!/bin/bash
# manual.sh DIR: checks the manual pages in a directory with mandoc and man, and fails if one of
# them prints a warning.
set -eu -o pipefail
cd "$1"

complaints=$(mandoc -T lint -W warning ./*.[1-8]) || true
for page in ./*.[1-8]; do
  complaints+=$(LC_ALL=C.UTF-8 MANROFFSEQ='' MANWIDTH=80 man --warnings=w -l "$page" 2>&1 >/dev/null) || true
done
[ -z "$complaints" ] || {
  printf '%s\n' "$complaints" >&2
  exit 1
}
