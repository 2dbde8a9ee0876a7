package shimwire

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestIsInfrastructure(t *testing.T) {
	for _, row := range []struct {
		name string
		args []string
		want bool
	}{
		{"tmux: server", nil, true},
		{"tmux: client", nil, true},
		{"corral-shim", nil, true},
		{"utempter", nil, true},
		{"exe", []string{TmuxClient, "-u", "-N"}, true},
		{"exe", []string{"chromium", "--type=zygote"}, false},
		{"exe", nil, false},
		{"tmux", []string{"tmux"}, false},
		{"claude", nil, false},
	} {
		got := IsInfrastructure(row.name, func() []string { return row.args })
		assert.Equal(t, row.want, got, "%s %v", row.name, row.args)
	}
}
