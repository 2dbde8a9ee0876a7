#!/bin/bash
# fuzz.sh: runs every fuzz test of the source tree for FUZZTIME, one after the other, because go
# test runs only one at a time. The minimization of an input that reaches new code is limited to 500
# executions; go test's default is a minute, during which nothing else is tested.
set -eu -o pipefail
cd "$(dirname "$0")/.."

git ls-files -co --exclude-standard '*_test.go' | xargs grep -Hoh -P '^func \KFuzz\w+(?=\(f \*testing\.F\))' --with-filename |
  while IFS=: read -r file name; do
    echo "fuzzing $name in $(dirname "$file")"
    go test -run '^$' -fuzz "^$name\$" -fuzztime "${FUZZTIME:-20s}" -fuzzminimizetime 500x "./$(dirname "$file")" </dev/null
  done
