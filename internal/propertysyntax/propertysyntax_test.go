package propertysyntax_test

import (
	"math"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/propertysyntax"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]struct {
		name  string
		value any
	}{
		"MemoryMax=2G":                   {"MemoryMax", uint64(2 << 30)},
		"MemoryMax=1.5K":                 {"MemoryMax", uint64(1536)},
		"MemoryMax=18446744073709551615": {"MemoryMax", uint64(math.MaxUint64)},
		"MemoryHigh=infinity":            {"MemoryHigh", uint64(math.MaxUint64)},
		"MemoryHigh=50%":                 {"MemoryHighScale", uint32(math.MaxUint32/2 + 1)},
		"MemorySwapMax=0":                {"MemorySwapMax", uint64(0)},
		"TasksMax=64":                    {"TasksMax", uint64(64)},
		"TasksMax=infinity":              {"TasksMax", uint64(math.MaxUint64)},
		"TasksMax=10%":                   {"TasksMaxScale", uint32(429496730)},
		"CPUQuota=20%":                   {"CPUQuotaPerSecUSec", uint64(200_000)},
		"CPUQuota=150%":                  {"CPUQuotaPerSecUSec", uint64(1_500_000)},
		"CPUQuota=":                      {"CPUQuotaPerSecUSec", uint64(math.MaxUint64)},
		"CPUWeight=50":                   {"CPUWeight", uint64(50)},
		"CPUWeight=idle":                 {"CPUWeight", uint64(0)},
		"IOWeight=10000":                 {"IOWeight", uint64(10_000)},
		"AllowedCPUs=0-3,9":              {"AllowedCPUs", []byte{0x0f, 0x02}},
		"RuntimeMaxSec=5min 20s":         {"RuntimeMaxUSec", uint64(320_000_000)},
		"TimeoutStopSec=infinity":        {"TimeoutStopUSec", uint64(math.MaxUint64)},
		"OOMPolicy=continue":             {"OOMPolicy", "continue"},
		"Slice=background.slice":         {"Slice", "background.slice"},
		"MemoryAccounting=yes":           {"MemoryAccounting", true},
		"Delegate=off":                   {"Delegate", false},
	} {
		name, v, err := propertysyntax.Parse(text)
		require.NoError(t, err, text)
		assert.Equal(t, want.name, name, text)
		assert.Equal(t, dbus.MakeVariant(want.value), v, text)
	}
}

func TestParse_RejectsInvalidProperties(t *testing.T) {
	for text, want := range map[string]string{
		"MemoryMax":         "NAME=VALUE",
		"=1":                "NAME=VALUE",
		"MemoryMaximum=1G":  `unknown unit property "MemoryMaximum"; known are: AllowedCPUs`,
		"MemoryMax=1X":      "unit property MemoryMax",
		"MemoryMax=-1":      "unit property MemoryMax",
		"MemoryMax=1e9":     "unit property MemoryMax",
		"MemoryMax=":        "unit property MemoryMax",
		"MemoryMax=101%":    "percentage up to 100",
		"MemoryMax=99999E":  "unit property MemoryMax",
		"TasksMax=0":        "expected a number of tasks",
		"CPUQuota=20":       "percentage above 0",
		"CPUQuota=0%":       "percentage above 0",
		"CPUWeight=0":       "expected a weight",
		"IOWeight=idle":     "expected a weight",
		"RuntimeMaxSec=5 x": "unit property RuntimeMaxSec",
		"OOMPolicy=panic":   "expected one of stop, continue, kill",
		"AllowedCPUs=3-1":   "expected a list",
		"AllowedCPUs=":      "expected a list",
		"Delegate=perhaps":  "expected yes or no",
		"Slice=":            "expected a name",
	} {
		_, _, err := propertysyntax.Parse(text)
		assert.ErrorContains(t, err, want, text)
	}
}
