package server

import (
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/propertysyntax"
	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/supervisor/session"
)

func TestParseSpec(t *testing.T) {
	v := dbus.MakeVariant
	properties := []dbusapi.UnitProperty{
		{Name: "MemoryMax", Value: v(uint64(1 << 29))}, {Name: "CPUQuotaPerSecUSec", Value: v(uint64(5e5))},
	}
	fix, ports := "fix", uint32(2)
	for _, row := range []struct {
		name string
		dict map[string]dbus.Variant
		want supervisor.Spec
		err  string // "NAME: part of the text"
	}{
		{"an empty dictionary", nil, supervisor.Spec{}, ""},
		{"all keys", map[string]dbus.Variant{
			"Id":               v("shop"),
			"Description":      v("a shop"),
			"Command":          v([]string{"a", ""}),
			"WorkingDirectory": v("/w"),
			"Environment":      v([]string{"A=b"}),
			"Labels":           v(map[string]string{"a": "b"}),
			"Ports":            v(uint32(2)),
			"OnLogin":          v("resume"),
			"ConversationId":   v("c1"),
			"Sandbox":          v("workspace"),
			"ForkedFrom":       v("site"),
			"Now":              v(true),
			"Start":            v(false),
			"UnitProperties":   v(properties),
			"x-mine":           v(int32(3)),
		}, supervisor.Spec{
			ID:               "shop",
			Description:      "a shop",
			Command:          []string{"a", ""},
			WorkingDirectory: "/w",
			Environment:      []string{"A=b"},
			Labels:           map[string]string{"a": "b"},
			Ports:            &ports,
			OnLogin:          "resume",
			ConversationID:   "c1",
			Sandbox:          "workspace",
			ForkedFrom:       "site",
			Now:              true,
			NoStart:          true,
			UnitProperties: []session.Property{
				{Name: "MemoryMax", Signature: "t", Value: "@t 536870912"},
				{Name: "CPUQuotaPerSecUSec", Signature: "t", Value: "@t 500000"},
			},
		}, ""},
		{"Start with its default", map[string]dbus.Variant{"Start": v(true)}, supervisor.Spec{}, ""},
		{
			"an unknown key", map[string]dbus.Variant{"Colour": v("red")}, supervisor.Spec{},
			`InvalidArgs: unknown key in the spec: "Colour"`,
		},
		{
			"an unknown key of 10,000 bytes", map[string]dbus.Variant{strings.Repeat("k", 10000): v("red")},
			supervisor.Spec{}, `InvalidArgs: unknown key in the spec: "kkk`,
		},
		{
			"a wrong type", map[string]dbus.Variant{"Command": v("ls -l")}, supervisor.Spec{},
			`InvalidArgs: Command in the spec has type "s", expected "as"`,
		},
		{
			"a number instead of a string", map[string]dbus.Variant{"Id": v(int32(7))}, supervisor.Spec{},
			`InvalidArgs: Id in the spec has type "i", expected "s"`,
		},
		{
			"properties as strings", map[string]dbus.Variant{"UnitProperties": v([]string{"MemoryMax=1G"})},
			supervisor.Spec{}, `InvalidArgs: UnitProperties in the spec has type "as", expected "a(sv)"`,
		},
		{
			"a property that supervision depends on",
			map[string]dbus.Variant{"UnitProperties": v([]dbusapi.UnitProperty{{Name: "KillMode", Value: v("none")}})},
			supervisor.Spec{}, `InvalidArgs: UnitProperties in the spec contains property "KillMode"`,
		},
		{
			"a property without a name",
			map[string]dbus.Variant{"UnitProperties": v([]dbusapi.UnitProperty{{Value: v("x")}})},
			supervisor.Spec{}, `InvalidArgs: UnitProperties in the spec contains property ""`,
		},
		{"a worktree", map[string]dbus.Variant{"Worktree": v("fix")}, supervisor.Spec{Worktree: &fix}, ""},
		{
			"a worktree with a generated branch", map[string]dbus.Variant{"Worktree": v("")},
			supervisor.Spec{Worktree: new(string)}, "",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, err := parseSpec(row.dict)
			if row.err == "" {
				require.NoError(t, err)
				assert.Equal(t, row.want, got)
				return
			}
			name, text, _ := strings.Cut(row.err, ": ")
			var e *dbus.Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, dbusapi.ErrorName(name), e.Name)
			assert.Contains(t, e.Body[0], text)
			assert.Less(t, len(e.Body[0].(string)), 300, "the error does not repeat a client's long text")
		})
	}
}

// FuzzParseSpec checks that no value of any type under any key causes a panic, and that every error
// has an error name of the contract.
func FuzzParseSpec(f *testing.F) {
	for key := range specKeys {
		f.Add(key, "as", `["a", "b"]`)
		f.Add(key, "s", `"a"`)
	}
	f.Add("Labels", "a{ss}", `{"a": "b"}`)
	f.Fuzz(func(t *testing.T, key, signature, text string) {
		dict := map[string]dbus.Variant{key: dbus.MakeVariant(text)}
		if v, err := propertysyntax.Decode(signature, text); err == nil {
			dict[key] = v
		}
		if _, err := parseSpec(dict); err != nil {
			var e *dbus.Error
			require.ErrorAs(t, err, &e)
			require.NotEmpty(t, dbusapi.ShortErrorName(*e))
		}
	})
}
