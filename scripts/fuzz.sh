#!/bin/bash
# fuzz.sh: runs every fuzz test of the tree for FUZZTIME each, one after the other, since go test takes one at a time. An
# input that reaches new code is made smaller in 500 tries, not for a minute each, go test's default, in which nothing else is tried.
set -eu -o pipefail
cd "$(dirname "$0")/.."

git ls-files -co --exclude-standard '*_test.go' | xargs grep -Hoh -P '^func \KFuzz\w+(?=\(f \*testing\.F\))' --with-filename |
  while IFS=: read -r file name; do
    echo "fuzzing $name in $(dirname "$file")"
    go test -run '^$' -fuzz "^$name\$" -fuzztime "${FUZZTIME:-20s}" -fuzzminimizetime 500x "./$(dirname "$file")" </dev/null
  done
