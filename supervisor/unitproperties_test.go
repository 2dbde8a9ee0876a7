package supervisor

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/supervisor/session"
)

func limit(name, value string) session.Property {
	return session.Property{Name: name, Signature: "t", Value: "@t " + value}
}

func TestSetUnitProperties_ChangesTheScopeAndTheRecord(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		require.NoError(t, b.sup.SetUnitProperties(b.t.Context(), "shop",
			[]session.Property{limit("TasksMax", "50"), limit("MemoryMaxScale", "9")}))
		assert.Equal(t, []string{`0s set 2 properties of scope "inv"`, "0s save shop: running", "0s answer 1"},
			only(b.takeTrace(), "set", "save", "answer"))
		require.NoError(t, b.sup.SetUnitProperties(b.t.Context(), "shop",
			[]session.Property{limit("MemoryMax", "70"), limit("CPUWeight", "7")}))
		b.takeTrace()
		assert.Equal(t, []session.Property{limit("TasksMax", "50"), limit("MemoryMax", "70"), limit("CPUWeight", "7")},
			b.records.last("shop").UnitProperties, "the later one of the same limit counts")
	})
}

// A limit that was given twice when the session was created must not replace, at the next start, a
// value that was set later.
func TestSetUnitProperties_LastOfTheSameLimitCounts(t *testing.T) {
	supervise(t, func(b *bed) {
		twice := []session.Property{limit("MemoryMaxScale", "9"), limit("TasksMax", "50"), limit("MemoryMax", "70")}
		_, err := b.sup.Create(b.t.Context(), "command",
			Spec{ID: "shop", Command: []string{"true"}, UnitProperties: twice, NoStart: true})
		require.NoError(t, err)
		assert.Equal(t, []session.Property{limit("MemoryMax", "70"), limit("TasksMax", "50")},
			b.records.last("shop").UnitProperties)
		assert.Equal(t, []session.Property{limit("MemoryMax", "80"), limit("TasksMax", "50")},
			mergeProperties(twice, []session.Property{limit("MemoryMax", "80")}),
			"also if an older version has saved both")
	})
}

func TestSetUnitProperties_DoesNotKeepRejectedOnes(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		b.system.properties = func(string, []session.Property) error { return refuse(Invalid, "no") }
		set := func() error {
			return b.sup.SetUnitProperties(b.t.Context(), "shop", []session.Property{limit("TasksMax", "0")})
		}
		assert.Equal(t, Invalid, kindOf(set()))
		b.system.properties = func(string, []session.Property) error { return errors.New("systemd does not answer") }
		require.ErrorContains(t, set(), "does not answer")
		assert.NotContains(t, b.takeTrace(), "0s save shop: running")
		assert.Equal(t, NoSuchSession, kindOf(b.sup.SetUnitProperties(b.t.Context(), "nobody", nil)))
		many := make([]session.Property, maxProperties+1)
		for i := range many {
			many[i].Name = fmt.Sprint("P", i)
		}
		assert.Equal(t, OverLimit, kindOf(b.sup.SetUnitProperties(b.t.Context(), "shop", many)))
	})
}

// The plan of that run does not contain the new properties.
func TestSetUnitProperties_AppliesToARunThatBeginsMeanwhile(t *testing.T) {
	supervise(t, func(b *bed) {
		_, err := b.sup.Create(b.t.Context(), "command", Spec{ID: "shop", Command: []string{"true"}, NoStart: true})
		require.NoError(t, err)
		started := make(chan error, 1)
		isStarted := false
		b.system.properties = func(string, []session.Property) error {
			if !isStarted {
				isStarted = true
				accepted := make(chan struct{})
				go func() { started <- b.sup.Start(WhenAccepted(b.t.Context(), func() { close(accepted) }), "shop") }()
				<-accepted
			}
			return nil
		}
		require.NoError(t, b.sup.SetUnitProperties(b.t.Context(), "shop", []session.Property{limit("TasksMax", "50")}))
		require.NoError(t, <-started)
		assert.Equal(t, []string{
			`0s set 1 properties of scope ""`,
			"0s start shop",
			`0s set 1 properties of scope ""`,
			`0s set 1 properties of scope "inv"`,
		}, only(b.takeTrace(), "set", "start shop"))
		assert.Equal(t, []session.Property{limit("TasksMax", "50")}, b.records.last("shop").UnitProperties)
	})
}
