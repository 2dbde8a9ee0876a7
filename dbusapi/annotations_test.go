package dbusapi_test

import (
	"encoding/xml"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5/introspect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestProperties_KeepTheirAnnotations compares the type, access and EmitsChangedSignal annotation
// of every property with a golden file. A client that caches properties relies on the annotations.
func TestProperties_KeepTheirAnnotations(t *testing.T) {
	var list strings.Builder
	for _, definition := range []string{dbusapi.ManagerXML, dbusapi.SessionXML} {
		var node introspect.Node
		require.NoError(t, xml.Unmarshal([]byte(definition), &node))
		for _, i := range node.Interfaces {
			for _, p := range i.Properties {
				emits := "true"
				for _, a := range p.Annotations {
					if a.Name == "io.github.corrald.Corral1.NotKnown" {
						continue
					}
					require.Equal(t, "org.freedesktop.DBus.Property.EmitsChangedSignal", a.Name)
					require.Contains(t, []string{"const", "invalidates", "false"}, a.Value)
					emits = a.Value
				}
				fmt.Fprintln(&list, i.Name[strings.LastIndexByte(i.Name, '.')+1:], p.Name, p.Type, p.Access, emits)
			}
		}
	}
	const golden = "testdata/properties.golden"
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(golden, []byte(list.String()), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	assert.Equal(t, string(want), list.String(), "if members were added: run this test with -update")
}
