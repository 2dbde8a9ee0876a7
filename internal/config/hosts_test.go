package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHosts_NamesDestinationsAndGroups(t *testing.T) {
	hosts, err := ParseHosts("gpu build=ann@build.example.com  v6=ann@fe80::1 @lab=gpu,build")
	require.NoError(t, err)
	assert.Equal(t, Hosts{
		Names:        []string{"gpu", "build", "v6"},
		Destinations: map[string]string{"gpu": "gpu", "build": "ann@build.example.com", "v6": "ann@fe80::1"},
		Groups:       map[string][]string{"lab": {"gpu", "build"}},
	}, hosts)
}

func TestHosts_InvalidOnesAreRefused(t *testing.T) {
	for value, want := range map[string]string{
		"a:b":       `invalid host "a:b": expected NAME or NAME=DESTINATION`,
		".host":     `invalid host ".host": expected NAME or NAME=DESTINATION`,
		"-oX":       `invalid host "-oX": expected NAME or NAME=DESTINATION`,
		"g*":        `invalid host "g*": expected NAME or NAME=DESTINATION`,
		"a=-oX":     `invalid host "a=-oX": expected a destination for ssh after =`,
		"a=":        `invalid host "a=": expected a destination for ssh after =`,
		"a a":       `host "a" is named twice`,
		"a @g":      `invalid group "@g": expected @GROUP=NAME,NAME, and a name other than all`,
		"a @all=a":  `invalid group "@all=a": expected @GROUP=NAME,NAME, and a name other than all`,
		"a @g=a,b":  `group "@g" has an unknown host "b"`,
		"a @g=a,@g": `group "@g" has an unknown host "@g"`,
	} {
		_, err := ParseHosts(value)
		require.EqualError(t, err, want)
	}
}

// FuzzParseHosts checks that a host is safe as an argument of ssh and as part of an id.
func FuzzParseHosts(f *testing.F) {
	for _, seed := range []string{"gpu", "a=b@c @g=a", "a=-oX", "@all=a", "a:b", "=", "@=", "a=b=c"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		hosts, err := ParseHosts(value)
		if err != nil {
			return
		}
		assert.Len(t, hosts.Destinations, len(hosts.Names))
		for name, destination := range hosts.Destinations {
			assert.Regexp(t, `\A[A-Za-z0-9_+][A-Za-z0-9@._+-]*\z`, name)
			assert.NotRegexp(t, `\A(-.*)?\z`, destination)
		}
		for _, names := range hosts.Groups {
			for _, name := range names {
				assert.Contains(t, hosts.Names, name)
			}
		}
	})
}
