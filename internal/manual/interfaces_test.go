package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
)

func TestContract_DocumentsEveryMember(t *testing.T) {
	page, err := describe(dbusapi.ManagerXML, dbusapi.SessionXML)
	require.NoError(t, err)
	for _, entry := range strings.Split(page, "\n\n") {
		assert.NotRegexp(t, `:   *\n?$`, entry)
	}
	memberName := regexp.MustCompile(`<(?:method|signal|property) name="([A-Za-z]+)"`)
	for _, m := range memberName.FindAllStringSubmatch(dbusapi.ManagerXML+dbusapi.SessionXML, -1) {
		assert.Contains(t, page, "**"+m[1]+"**")
	}
	assert.Contains(t, errorNames(dbusapi.ManagerXML), "NoSuchSession, SessionExists")
}

func TestDescribe_FormatsAnEntry(t *testing.T) {
	page, err := describe(`<node><interface name="a.b.C">
		<!-- replies when it
		     is done -->
		<method name="Do_It"><arg name="x" type="s" direction="in"/><arg name="y" type="a{sv}" direction="out"/></method>
		<!-- a * of it --><property name="P" type="b" access="readwrite"><annotation name="org.freedesktop.DBus.Property.EmitsChangedSignal" value="const"/></property>
	</interface></node>`)
	require.NoError(t, err)
	assert.Equal(t, "# METHODS OF THE C\n\n**Do_It**(s x) -> a{sv} y\n:   Replies when it is done.\n\n"+
		"# PROPERTIES OF THE C\n\n**P** b\n:   A \\* of it. Can be set. It never changes.\n\n", page)
	_, err = describe("<a")
	assert.Error(t, err)
}

// TestReference_IsUpToDate fails if docs/reference/dbus.md differs from the interface definitions.
// "make generated" rewrites it.
func TestReference_IsUpToDate(t *testing.T) {
	page, err := reference(dbusapi.ManagerXML, dbusapi.SessionXML)
	require.NoError(t, err)
	written, err := os.ReadFile("../../docs/reference/dbus.md")
	require.NoError(t, err)
	assert.Equal(t, string(written), page, "make generated")
	all, err := readInterfaces(dbusapi.ManagerXML, dbusapi.SessionXML)
	require.NoError(t, err)
	for _, i := range all {
		for _, m := range i.members {
			if m.kind == "property" {
				assert.Contains(t, page, "| `"+m.name+"` | `"+m.dbusType+"` | "+m.access+" | ")
			} else {
				assert.Contains(t, page, "\n**"+m.name+"**(")
			}
		}
	}
}
