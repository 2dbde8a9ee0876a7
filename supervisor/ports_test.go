package supervisor

import (
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/supervisor/session"
)

// withPorts creates a session with some ports, and returns these.
func (b *bed) withPorts(id string, count uint32) []uint16 {
	b.t.Helper()
	_, err := b.sup.Create(b.t.Context(), "command", Spec{ID: id, Command: []string{"true"}, Ports: &count})
	require.NoError(b.t, err)
	snap, err := b.sup.Session(id)
	require.NoError(b.t, err)
	return snap.Ports
}

func TestCreate_SharesNoPorts(t *testing.T) {
	supervise(t, func(b *bed) {
		all := make([][]uint16, 50)
		var group sync.WaitGroup
		for i := range all {
			group.Go(func() { all[i] = b.withPorts(fmt.Sprint("s", i), uint32(1+i%3)) })
		}
		group.Wait()
		used := slices.Concat(all...)
		slices.Sort(used)
		assert.Len(t, slices.Compact(used), 16*1+1+17*2+16*3, "each of them once")
		assert.GreaterOrEqual(t, used[0], uint16(20000))
		assert.LessOrEqual(t, used[len(used)-1], uint16(29999))
		assert.Equal(t, all[2][0]+2, all[2][2], "they follow each other")
	})
}

// TestCreate_ReleasesPorts: a block is free again once its session is removed or archived, and a
// session that is created again gets the same one.
func TestCreate_ReleasesPorts(t *testing.T) {
	supervise(t, func(b *bed) {
		c := config.Default()
		c.PortRange = config.PortRange{First: 20000, Last: 20003}
		require.NoError(t, b.sup.Reload(c, b.options.Agents))
		one, two := b.withPorts("one", 2), b.withPorts("two", 2)
		assert.ElementsMatch(t, []uint16{20000, 20001, 20002, 20003}, slices.Concat(one, two))
		count := uint32(1)
		_, err := b.sup.Create(b.t.Context(), "command", Spec{ID: "three", Command: []string{"true"}, Ports: &count})
		assert.Equal(t, refuse(OverLimit, "PortRange=20000-20003 has no 1 free ports in a row"), err)

		b.exit("one", 0)
		b.endScope("one")
		require.NoError(t, b.sup.Remove(b.t.Context(), "one", false))
		assert.Equal(t, one, b.withPorts("one", 2))
		b.exit("two", 0)
		b.endScope("two")
		require.NoError(t, b.sup.Archive(b.t.Context(), "two"))
		assert.Equal(t, two, b.withPorts("three", 2))

		count = config.MaxPorts + 1
		_, err = b.sup.Create(b.t.Context(), "command", Spec{ID: "four", Command: []string{"true"}, Ports: &count})
		assert.Equal(t, OverLimit, kindOf(err))
	})
}

// TestPorts_AreKept: the agent gets the same ports in each run, also if a program uses one of them
// by then. A new session does not get that port.
func TestPorts_AreKept(t *testing.T) {
	supervise(t, func(b *bed) {
		var got []string
		b.system.start = func(p Plan, report func(session.Event)) error {
			got = p.Environment.Corral
			return runs(p, report)
		}
		ports := b.withPorts("shop", 2)
		variables := []string{fmt.Sprintf("CORRAL_PORT=%d", ports[0])}
		assert.Equal(t, variables, got)
		assert.Equal(t, session.Ports{First: ports[0], Count: 2}, b.records.last("shop").Ports)
		b.exit("shop", 0)
		b.endScope("shop")
		b.takeTrace()

		other, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", ports[1]))
		require.NoError(t, err)
		defer func() { _ = other.Close() }()
		require.NoError(t, b.sup.Start(b.t.Context(), "shop"))
		assert.Equal(t, variables, got)
		assert.Contains(t, b.takeTrace(), fmt.Sprintf("0s problem shop: when its run began, a program used port %d, "+
			"which is reserved for it: find it with ss -ltnp sport = :%d", ports[1], ports[1]))

		b.exit("shop", 0)
		b.endScope("shop")
		require.NoError(t, b.sup.Remove(b.t.Context(), "shop", false))
		assert.NotContains(t, b.withPorts("shop", 2), ports[1])
	})
}
