package hosts

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/config"
)

// TestLastLine_KeepsTheEndOfTheLastLine: what ssh prints becomes part of a message.
func TestLastLine_KeepsTheEndOfTheLastLine(t *testing.T) {
	var l lastLine
	for _, c := range []struct{ write, want string }{
		{"", ""},
		{"one\ntw", "tw"},
		{"o\r\n", "two"},
		{"\n", "two"},
		{"three\x1b[31m\n", `three\x1b[31m`},
		{strings.Repeat("x", 2*maxLine), strings.Repeat("x", maxLine)},
	} {
		_, err := fmt.Fprint(&l, c.write)
		require.NoError(t, err)
		assert.Equal(t, c.want, l.String(), "%.20q", c.write)
	}
}

func TestSelect_HostsOfACommandLine(t *testing.T) {
	configured, err := config.ParseHosts("gpu build=ann@build.example.com @lab=gpu,build")
	require.NoError(t, err)
	const expected = `: expected HOST or USER@HOST`
	here := Host{}
	uri := Host{Destination: "ssh://ann@[::1]:22"}
	unknown := Host{Name: "ann@new.example.com", Destination: "ann@new.example.com"}
	gpu, build := Host{Name: "gpu", Destination: "gpu"}, Host{Name: "build", Destination: "ann@build.example.com"}
	for name, row := range map[string]struct {
		given, words string
		want         []Host
		err          string
	}{
		"nothing names a host":               {"", "shop s*", nil, ""},
		"one host":                           {"gpu", "shop", []Host{{Destination: "gpu"}}, ""},
		"one host by another name":           {"build", "", []Host{{Destination: "ann@build.example.com"}}, ""},
		"any destination of ssh":             {"ssh://ann@[::1]:22", "", []Host{uri}, ""},
		"this machine":                       {".host", "shop", nil, ""},
		"an id with its host":                {"", "gpu:shop", []Host{gpu}, ""},
		"an id with its host, and a local":   {"", "gpu:shop shop", []Host{gpu, here}, ""},
		"a host and an id with another one":  {"build", "gpu:shop site", []Host{build, gpu}, ""},
		"one host that an id names as well":  {"gpu", "gpu:shop", []Host{gpu}, ""},
		"several":                            {"gpu build", "", []Host{gpu, build}, ""},
		"one several times":                  {"gpu gpu", "", []Host{{Destination: "gpu"}}, ""},
		"a group":                            {"@lab", "", []Host{gpu, build}, ""},
		"a group, and one of it":             {"@lab gpu", "", []Host{gpu, build}, ""},
		"all":                                {"@all", "", []Host{here, gpu, build}, ""},
		"a host that is not configured":      {"", "ann@new.example.com:shop", []Host{unknown}, ""},
		"an option instead of a host":        {"-oProxyCommand=x", "", nil, `invalid host "-oProxyCommand=x"` + expected},
		"an option instead of a host, in id": {"", "-oProxyCommand=x:shop", nil, `invalid host "-oProxyCommand=x"` + expected},
		"a pattern instead of a host":        {"", "g*:shop", nil, `invalid host "g*"` + expected},
		"no host before the colon":           {"", ":shop", nil, `invalid host ""` + expected},
		"two colons":                         {"", "gpu:a:shop", nil, `invalid host "gpu:a"` + expected},
		"an unknown group":                   {"@shed", "", nil, `unknown group "@shed": Hosts= in corral.conf does not have it`},
	} {
		got, err := Select(strings.Fields(row.given), strings.Fields(row.words), configured)
		assert.Equal(t, row.want, got, name)
		if row.err == "" {
			require.NoError(t, err, name)
		} else {
			require.EqualError(t, err, row.err, name)
		}
	}
}
