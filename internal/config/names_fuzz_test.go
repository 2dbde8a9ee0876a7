package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// FuzzValidName checks that valid ids and agent names can be file names and parts of unit names
// without escaping.
func FuzzValidName(f *testing.F) {
	for _, seed := range []string{"shop", "shop-2", "a.", "a-", "..", "a/b", "a\n", "A"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if !ValidName(name) {
			return
		}
		assert.LessOrEqual(t, len(name), 64)
		assert.Regexp(t, `\A[a-z0-9][a-z0-9._-]*\z`, name)
		assert.NotRegexp(t, `[.-]\z`, name)
	})
}
