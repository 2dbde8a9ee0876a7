package store

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/supervisor/session"
)

func TestLoad_SharesEqualStrings(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	want := map[string]*session.Session{}
	for _, id := range []string{"a", "b"} {
		rec := record(id)
		rec.Past = append(rec.Past, rec.Past[0], rec.Past[0])
		require.NoError(t, s.Create(id))
		require.NoError(t, s.Save(rec, "1"))
		want[id] = rec
	}
	require.NoError(t, s.Close())
	all, found, err := open(t, dir).Load()
	require.NoError(t, err)
	assert.Empty(t, found)
	require.Len(t, all, 2)
	for _, rec := range all {
		assert.Equal(t, want[rec.ID], rec)
		assert.Equal(t, unsafe.StringData(all[0].Run.BootID), unsafe.StringData(rec.Past[2].BootID))
		assert.Equal(t, unsafe.StringData(all[0].Agent), unsafe.StringData(rec.Agent))
	}
}
