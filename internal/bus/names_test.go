package bus

import (
	"errors"
	"fmt"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
)

func TestHasErrorName_FindsWrappedReplies(t *testing.T) {
	err := fmt.Errorf("cannot stop: %w", dbus.Error{Name: SystemdNoSuchUnit})
	assert.True(t, HasErrorName(err, ErrorPrefix+"NoReply", SystemdNoSuchUnit))
	assert.False(t, HasErrorName(err, ErrorPrefix+"NoReply"))
	assert.False(t, HasErrorName(errors.New(SystemdNoSuchUnit), SystemdNoSuchUnit))
	assert.False(t, HasErrorName(nil, SystemdNoSuchUnit))
}

func TestFirstArg_ChecksTheType(t *testing.T) {
	id, ok := FirstArg[uint32]([]any{uint32(7), "more"})
	assert.True(t, ok)
	assert.Equal(t, uint32(7), id)
	for _, body := range [][]any{nil, {"7"}, {nil}, {int32(7), uint32(7)}} {
		id, ok := FirstArg[uint32](body)
		assert.False(t, ok, "%v", body)
		assert.Zero(t, id)
	}
}
