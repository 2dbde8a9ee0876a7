package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPages_HaveEveryMember(t *testing.T) {
	c, err := readContract("../..")
	require.NoError(t, err)
	page, err := render("page.md.tmpl", c)
	require.NoError(t, err)
	reference, err := render("reference.md.tmpl", c)
	require.NoError(t, err)
	for _, i := range c.interfaces {
		for _, m := range i.Members {
			assert.NotEmpty(t, m.Comment, m.Name)
			assert.Contains(t, page, "**"+m.Name+"**")
			if m.Kind == "property" {
				assert.Contains(t, reference, "| `"+m.Name+"` | `"+m.DBusType+"` | "+m.Access+" | ")
			} else {
				assert.Contains(t, reference, "\n**"+m.Name+"**(")
			}
		}
	}
	assert.Contains(t, c.Errors, "NoSuchSession, SessionExists")
}

const example = `<node><interface name="a.b.C">
		<!-- replies when it
		     is done -->
		<method name="Do_It"><arg name="x" type="s" direction="in"/><arg name="y" type="a{sv}" direction="out"/></method>
		<!-- a * of it --><property name="P" type="b" access="readwrite"><annotation name="org.freedesktop.DBus.Property.EmitsChangedSignal" value="const"/></property>
		<!-- How much. --><property name="N" type="t" access="read"><annotation name="org.freedesktop.DBus.Property.EmitsChangedSignal" value="false"/><annotation name="io.github.corrald.Corral1.NotKnown" value="7"/></property>
	</interface></node>`

func TestManualPage_FormatsAnEntry(t *testing.T) {
	all, err := readInterfaces(example)
	require.NoError(t, err)
	page, err := render("page.md.tmpl", contract{interfaces: all})
	require.NoError(t, err)
	assert.Equal(t, "# METHODS OF THE C\n\n**Do_It**(s x) -> a{sv} y\n:   Replies when it is done.\n\n"+
		"# PROPERTIES OF THE C\n\n**P** b\n:   A \\* of it. Can be set. It never changes.\n\n"+
		"**N** t\n:   How much. 7 if it is not known. Its changes are not announced.\n\n", page)
	_, err = readInterfaces("<a")
	assert.Error(t, err)
}

// TestGenerated_FilesAreUpToDate fails if a generated file differs from the interface definitions.
// "make generated" rewrites it.
func TestGenerated_FilesAreUpToDate(t *testing.T) {
	c, err := readContract("../..")
	require.NoError(t, err)
	files, err := c.generated("../..")
	require.NoError(t, err)
	for name, text := range files {
		written, err := readFiles("../..", name)
		require.NoError(t, err)
		assert.Equal(t, written[0], text, "%s: make generated", name)
	}
	assert.True(t, json.Valid([]byte(files["docs/reference/json.schema.json"])))
}

func TestTypes_DescribeEachProperty(t *testing.T) {
	all, err := readInterfaces(example)
	require.NoError(t, err)
	types, err := contract{session: all[0].membersOf("property")}.types()
	require.NoError(t, err)
	assert.Contains(t, types, `type Session struct {
	// A * of it. Can be set. It never changes.
	P bool
	// How much. 7 if it is not known. Its changes are not announced.
	N uint64
}
`)
	assert.Contains(t, types, `	{Name: "P", Announced: NeverChanges},
	{Name: "N", Announced: NotAnnounced, MayBeUnknown: true, NotKnown: 7},
`)
	assert.Contains(t, types, "	return Session{\n		N: 7,\n	}\n")
	_, err = contract{session: []member{{Name: "X", DBusType: "d"}}}.types()
	require.ErrorContains(t, err, `there is no Go type for "d"`)
}

func TestDescribeJSON_RequiresThePlacesOfTheTables(t *testing.T) {
	all, err := readInterfaces(example)
	require.NoError(t, err)
	c := contract{session: all[0].membersOf("property")}
	_, err = c.describeJSON("no table\n")
	require.ErrorContains(t, err, "properties of a session")
	page, err := c.describeJSON("a\n<!-- generated: properties of a session -->\nold\n<!-- end -->\nb\n" +
		"<!-- generated: properties of the daemon -->\n<!-- end -->\n")
	require.NoError(t, err)
	assert.Contains(t, page, "a\n<!-- generated: properties of a session -->\n| key | type | meaning |\n|---|---|---|\n"+
		"| `P` | bool | A \\* of it. |\n| `N` | number or null | How much. |\n<!-- end -->\nb\n")
}
