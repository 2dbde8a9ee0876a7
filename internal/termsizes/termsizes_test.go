package termsizes_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/termsizes"
)

func TestSizes_FollowRotationAndTruncation(t *testing.T) {
	s := termsizes.New(0)
	s.Set(termsizes.Size{0, 80, 24})
	s.Set(termsizes.Size{70, 80, 24})
	s.Set(termsizes.Size{100, 120, 40})
	s.Set(termsizes.Size{100, 100, 40})
	assert.Equal(t, "0\n0 80 24\n100 100 40\n", string(s.Append(nil)),
		"repeated sizes, and sizes at which nothing was written, are not kept")
	s.Rotate(200)
	assert.Equal(t, "0\n200\n0 80 24\n100 100 40\n", string(s.Append(nil)))
	s.Set(termsizes.Size{250, 90, 40})
	s.Rotate(300)
	assert.Equal(t, "200\n300\n100 100 40\n250 90 40\n", string(s.Append(nil)),
		"the size at the start of the older file is kept")
	s.TrimStarts(60, 10)
	assert.Equal(t, "260\n310\n250 90 40\n", string(s.Append(nil)))
	assert.Equal(t, termsizes.Size{250, 90, 40}, s.Last())
	older, ok := s.OlderStart()
	assert.True(t, ok)
	assert.Equal(t, int64(260), older)
	assert.Equal(t, int64(310), s.Start())
}

func TestSizes_AreLimited(t *testing.T) {
	s := termsizes.New(1 << 61)
	s.Rotate(1<<61 + 1)
	for i := range 10_000 {
		s.Set(termsizes.Size{1<<61 + int64(i), 65535, uint16(i)})
	}
	text := s.Append(nil)
	assert.LessOrEqual(t, len(text), termsizes.MaxFileSize)
	again, err := termsizes.Parse(text)
	require.NoError(t, err)
	assert.Equal(t, s, again)
	assert.Equal(t, uint16(9999), again.Last().Rows)
}

func TestParseSizes_RejectsMalformedFiles(t *testing.T) {
	for _, text := range []string{
		"", "x\n", "1", "1 2\n", "0\n1 80\n", "0\n1 80 24 9\n", "0\n1 80 24\n1 80 25\n", "0\n5\n9\n", "5\n4\n",
		"0\n1 80 24\n7\n", "0\n1 65536 1\n", "-1\n", "0\n01 1 1\n", "99999999999999999999\n",
	} {
		_, err := termsizes.Parse([]byte(text))
		assert.Error(t, err, "%q", text)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"0\n", "0\n0 80 24\n", "0\n200\n0 80 24\n100 100 40\n", "1 2 3\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := termsizes.Parse(text)
		if err != nil {
			return
		}
		require.Equal(t, string(text), string(s.Append(nil)))
		s.Rotate(s.Start() + 1)
		s.Set(termsizes.Size{s.Start() + 5, 1, 1})
		require.LessOrEqual(t, len(s.Append(nil)), termsizes.MaxFileSize)
	})
}
