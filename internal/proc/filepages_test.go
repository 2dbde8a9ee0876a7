package proc

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReleaseFilePages_ReleasesPagesOfTheProgram(t *testing.T) {
	resident := func() (kib uint64) {
		status, err := os.ReadFile("/proc/self/status")
		require.NoError(t, err)
		_, rest, _ := strings.Cut(string(status), "RssFile:")
		for _, c := range strings.TrimSpace(rest) {
			if c < '0' || c > '9' {
				break
			}
			kib = 10*kib + uint64(c-'0')
		}
		return kib
	}
	before := resident()
	ReleaseFilePages()
	assert.Less(t, resident(), before)
}

func TestReadOnlyPages_ReturnsTheBounds(t *testing.T) {
	from, to, ok := readOnlyPages("00400000-00a00000 r-xp 00000000 fe:00 12 /usr/x", "/usr/x")
	assert.True(t, ok)
	assert.Equal(t, []uint64{0x400000, 0xa00000}, []uint64{from, to})
	_, _, ok = readOnlyPages("00400000-00a00000 rw-p 00000000 fe:00 12 /usr/x", "/usr/x")
	assert.False(t, ok)
}

// RELRO pages are read-only and differ from the file.
func TestFilePages_ExcludesRelocatedPages(t *testing.T) {
	const smaps = "00400000-00a00000 r-xp 00000000 fe:00 12   /usr/x\n" +
		"Size: 6144 kB\nAnonymous:             0 kB\nVmFlags: rd ex\n" +
		"00a00000-00b00000 r--p 00600000 fe:00 12   /usr/x\nSize: 1024 kB\nAnonymous:           780 kB\n" +
		"00b00000-00c00000 rw-p 00700000 fe:00 12   /usr/x\nAnonymous:             0 kB\n" +
		"00c00000-00d00000 r--p 00000000 fe:00 12   /usr/y\nAnonymous:             0 kB\n" +
		"00d00000-00e00000 r--p 00800000 fe:00 12   /usr/x\nAnonymous:             0 kB\n"
	var got []uint64
	for from, to := range filePages(strings.NewReader(smaps), "/usr/x") {
		got = append(got, from, to)
	}
	assert.Equal(t, []uint64{0x400000, 0xa00000, 0xd00000, 0xe00000}, got)
}

// FuzzReadOnlyPages checks that mappings that are writable, or of another file, are rejected.
func FuzzReadOnlyPages(f *testing.F) {
	f.Add("00400000-00a00000 r-xp 00000000 fe:00 12 /usr/x", "/usr/x")
	f.Add("00400000-00a00000 rw-p 00000000 fe:00 12 /usr/x", "/usr/x")
	f.Add("ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]", "[vsyscall]")
	f.Fuzz(func(t *testing.T, line, file string) {
		from, to, ok := readOnlyPages(line, file)
		if !ok {
			return
		}
		require.Less(t, from, to)
		require.True(t, strings.HasSuffix(line, " "+file))
		_, mode, _ := strings.Cut(line, " ")
		require.True(t, strings.HasPrefix(mode, "r") && !strings.HasPrefix(mode, "rw"))
	})
}
