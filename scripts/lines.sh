#!/bin/sh
# lines.sh: counts the lines of Go in the tree, of the product, of the tools for developers and of
# the tests. With arguments "PRODUCT TOOLS" it fails if either has more lines than that.
set -eu
cd "$(dirname "$0")/.."

tools='^internal/(bench|testbed|manual|failpoint)/'

# count prints the number of lines of the files whose names it reads.
count() { tr '\n' '\0' | xargs -0 -r cat | wc -l; }

files() { git ls-files -- '*.go' | grep -v -e '/testdata/'; }

product=$(files | grep -v '_test\.go$' | grep -vE "$tools" | count)
developers=$(files | grep -v '_test\.go$' | grep -E "$tools" | count)
tests=$(files | grep '_test\.go$' | count)
printf 'product  %6d\ntools    %6d\ntests    %6d\n' "$product" "$developers" "$tests"

if [ $# -eq 2 ] && { [ "$product" -gt "$1" ] || [ "$developers" -gt "$2" ]; }; then
	echo "lines.sh: more than $1 lines of product or $2 lines of tools" >&2
	exit 1
fi
