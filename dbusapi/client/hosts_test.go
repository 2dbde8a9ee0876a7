package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
)

// scriptedBus is the bus of another machine, which does what a test wants: also what no bus does.
type scriptedBus struct {
	t       *testing.T
	answers map[string][]any // bodies of replies, by member; nil for no reply
	muted   atomic.Bool      // nothing is answered
	lock    chan struct{}    // of the fields below; a mutex would stop the clock of synctest
	out     io.WriteCloser
	cut     func() // ends the connection
}

// newBus returns a bus on which a daemon runs.
func newBus(t *testing.T, answers map[string][]any) *scriptedBus {
	all := map[string][]any{"Hello": {":1.7"}, "AddMatch": {}, "GetNameOwner": {":1.3"}, "NameHasOwner": {true}}
	for member, body := range answers {
		all[member] = body
	}
	return &scriptedBus{t: t, answers: all, lock: make(chan struct{}, 1)}
}

// dial is Host.Dial.
func (b *scriptedBus) dial(ctx context.Context) (*Client, error) {
	fromClient, toBus := io.Pipe()
	fromBus, toClient := io.Pipe()
	b.lock <- struct{}{}
	b.out, b.cut = toClient, func() { _ = toClient.Close(); _ = fromClient.Close() }
	<-b.lock
	go b.serve(bufio.NewReader(fromClient))
	return ConnectOver(ctx, pipeStream{fromBus, closers{toBus, fromBus, b.cut}})
}

// closers closes both directions.
type closers struct {
	*io.PipeWriter
	in  *io.PipeReader
	cut func()
}

func (c closers) Close() error {
	c.cut()
	return errors.Join(c.PipeWriter.Close(), c.in.Close())
}

func (b *scriptedBus) serve(in *bufio.Reader) {
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		switch word := strings.Trim(line, "\x00\r\n"); {
		case word == "AUTH":
			b.write([]byte("REJECTED EXTERNAL\r\n"))
		case strings.HasPrefix(word, "AUTH"):
			b.write([]byte("OK 0123456789abcdef0123456789abcdef\r\n"))
		case word == "BEGIN":
			b.serveCalls(in)
			return
		}
	}
}

func (b *scriptedBus) serveCalls(in *bufio.Reader) {
	for {
		m, err := dbus.DecodeMessage(in)
		if err != nil {
			return
		}
		member, _ := m.Headers[dbus.FieldMember].Value().(string)
		if body := b.answers[member]; body != nil && !b.muted.Load() {
			b.send(dbus.TypeMethodReply, map[dbus.HeaderField]any{
				dbus.FieldReplySerial: m.Serial(), dbus.FieldSender: ":1.3",
			}, body...)
		}
	}
}

func (b *scriptedBus) write(data []byte) {
	b.lock <- struct{}{}
	defer func() { <-b.lock }()
	_, _ = b.out.Write(data)
}

func (b *scriptedBus) send(kind dbus.Type, headers map[dbus.HeaderField]any, body ...any) {
	b.write(encode(b.t, kind, headers, body...))
}

func encode(t *testing.T, kind dbus.Type, headers map[dbus.HeaderField]any, body ...any) []byte {
	m := &dbus.Message{Type: kind, Headers: map[dbus.HeaderField]dbus.Variant{}, Body: body}
	for field, value := range headers {
		m.Headers[field] = dbus.MakeVariant(value)
	}
	if len(body) > 0 {
		m.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(body...))
	}
	var text bytes.Buffer
	require.NoError(t, m.EncodeTo(&text, binary.LittleEndian))
	return text.Bytes()
}

// signal is the headers of a signal of the daemon.
func signal(path dbus.ObjectPath, iface, member string) map[dbus.HeaderField]any {
	return map[dbus.HeaderField]any{
		dbus.FieldSender: ":1.3", dbus.FieldPath: path, dbus.FieldInterface: iface, dbus.FieldMember: member,
	}
}

func rows(ids ...string) []any {
	list := []dbusapi.SessionRow{}
	for _, id := range ids {
		list = append(list, dbusapi.SessionRow{ID: id, State: "running", Path: dbusapi.SessionPath("x")})
	}
	return []any{list}
}

func ids(rows []dbusapi.SessionRow) []string {
	all := []string{}
	for _, row := range rows {
		all = append(all, row.ID)
	}
	return all
}

func TestHosts_OnesThatDoNotAnswerDoNotDelayTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := errors.New("connection refused")
		c := ConnectHosts(t.Context(),
			Host{Name: "a", Dial: newBus(t, map[string][]any{"ListSessions": rows("shop", "site")}).dial},
			Host{Name: "b", Dial: func(context.Context) (*Client, error) { return nil, refused }},
			Host{Name: "c", Dial: newBus(t, nil).dial}, // its daemon does not answer
			Host{Name: "d", Dial: func(ctx context.Context) (*Client, error) { <-ctx.Done(); return nil, ctx.Err() }},
			Host{Dial: newBus(t, map[string][]any{"ListSessions": rows("shop")}).dial})
		began := time.Now()
		rows, err := c.ListSessions(t.Context())
		assert.Equal(t, []string{"a:shop", "a:site", "shop"}, ids(rows))
		require.EqualError(t, err, "b: connection refused; "+
			"c: cannot connect to the session bus: no answer within 2s; "+
			"d: cannot connect to the session bus: no answer within 2s")
		assert.Equal(t, hostTimeout, time.Since(began))
		require.ErrorIs(t, err, refused)
		require.NoError(t, c.Close())
	})
}

// A session is called on its own host, and the host does not decide how it is called here.
func TestHosts_AnIDNamesItsHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		evil := []any{map[string]dbus.Variant{
			"Id": dbus.MakeVariant("b:other"), "State": dbus.MakeVariant("a"), "Parent": dbus.MakeVariant("lead"),
		}}
		a := newBus(t, map[string][]any{
			"GetAll":       evil,
			"ListSessions": rows("ok", "b:shop", "", "x\x1b[31m", "two\nlines", "UPPER", "shop:", "-x", strings.Repeat("a", 65)),
		})
		plain := []any{map[string]dbus.Variant{"State": dbus.MakeVariant("b")}}
		b := newBus(t, map[string][]any{"GetAll": plain, "StopSession": {}})
		c := ConnectHosts(t.Context(), Host{Name: "a", Dial: a.dial}, Host{Name: "b", Dial: b.dial})
		defer func() { _ = c.Close() }()
		s, err := c.Session(t.Context(), "a:shop")
		require.NoError(t, err)
		assert.Equal(t, []string{"a:shop", "a", "a:lead"}, []string{s.Id, s.State, s.Parent})
		s, err = c.Session(t.Context(), "b:shop")
		require.NoError(t, err)
		assert.Equal(t, []string{"b:shop", "b", ""}, []string{s.Id, s.State, s.Parent})
		require.NoError(t, c.StopSession(t.Context(), "b:shop", 0))
		for _, id := range []string{"shop", "c:shop", ":shop", "a:b:shop"} {
			_, err = c.Session(t.Context(), id)
			require.ErrorContains(t, err, "unknown host", id)
		}
		_, err = c.ListAgents(t.Context())
		require.ErrorIs(t, err, errSeveralHosts)
		listed, _ := c.Of("a").ListSessions(t.Context())
		assert.Equal(t, []string{"a:ok"}, ids(listed))
	})
}

func TestHosts_WatchReportsALostHostAndItsReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := newBus(t, nil)
		other := newBus(t, nil)
		c := ConnectHosts(t.Context(), Host{Name: "a", Dial: bus.dial}, Host{Name: "b", Dial: other.dial})
		defer func() { _ = c.Close() }()
		events, err := c.Watch(t.Context())
		require.NoError(t, err)
		path := dbusapi.SessionPath("shop")
		changed := func(id string) { // an id among the properties is not used
			bus.send(dbus.TypeSignal, signal(path, propertiesInterface, "PropertiesChanged"), dbusapi.SessionInterface,
				map[string]dbus.Variant{"Id": dbus.MakeVariant(id), "State": dbus.MakeVariant("failed")}, []string{})
		}
		changed("b:site")
		assert.Equal(t, SessionChanged{
			ID: "a:shop", Properties: Properties{"State": dbus.MakeVariant("failed")}, Invalidated: []string{},
		}, <-events)
		bus.send(dbus.TypeSignal, signal(dbusapi.ManagerPath, dbusapi.ManagerInterface, "SessionNew"), "b:site", path)
		bus.send(dbus.TypeSignal, signal(dbusapi.ManagerPath, dbusapi.ManagerInterface, "SessionNew"), "site", path)
		assert.Equal(t, SessionNew{"a:site"}, <-events)
		bus.cut()
		assert.Equal(t, DaemonGone{"a", errLost}, <-events)
		assert.Equal(t, DaemonBack{"a"}, <-events)
		changed("")
		assert.Equal(t, "a:shop", (<-events).(SessionChanged).ID)

		bus.muted.Store(true) // the network is lost: nothing arrives any more
		began := time.Now()
		assert.Equal(t, DaemonGone{"a", errLost}, <-events)
		assert.LessOrEqual(t, time.Since(began), 2*keepAlive+hostTimeout)
	})
}

const propertiesInterface = "org.freedesktop.DBus.Properties"

// Messages that no bus sends do not end this process, nor fill its memory.
func TestRemote_HostileMessages(t *testing.T) {
	huge := make([]byte, 16)
	copy(huge, []byte{'l', byte(dbus.TypeSignal), 0, 1})
	binary.LittleEndian.PutUint32(huge[4:], math.MaxUint32-20)
	binary.LittleEndian.PutUint32(huge[12:], math.MaxUint32-20)
	driver := func(member string) map[dbus.HeaderField]any {
		headers := signal("/org/freedesktop/DBus", "org.freedesktop.DBus", member)
		headers[dbus.FieldSender] = "org.freedesktop.DBus"
		return headers
	}
	reply := map[dbus.HeaderField]any{dbus.FieldReplySerial: uint32(99)}
	empty := signal("/x", propertiesInterface, "PropertiesChanged")
	for name, row := range map[string]struct {
		message []byte
		ends    bool // the connection
	}{
		"a message that is longer than any":   {huge, true},
		"no message":                          {[]byte("GET / HTTP/1.1\r\nHost: corral\r\n\r\n"), true},
		"a lost name without a name":          {encode(t, dbus.TypeSignal, driver("NameLost")), false},
		"an acquired name that is a number":   {encode(t, dbus.TypeSignal, driver("NameAcquired"), uint32(7)), false},
		"a reply to no call":                  {encode(t, dbus.TypeMethodReply, reply), false},
		"a call":                              {encode(t, dbus.TypeMethodCall, signal("/x", "a.b", "C")), false},
		"a change of properties without body": {encode(t, dbus.TypeSignal, empty), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bus := newBus(t, map[string][]any{"ListSessions": rows("shop")})
				c, err := bus.dial(t.Context())
				require.NoError(t, err)
				events, err := c.Watch(t.Context())
				require.NoError(t, err)
				go bus.write(row.message)
				if row.ends {
					_, open := <-events
					assert.False(t, open)
				} else {
					synctest.Wait()
					listed, err := c.ListSessions(t.Context())
					require.NoError(t, err)
					assert.Equal(t, []string{"shop"}, ids(listed))
				}
				_ = c.Close()
			})
		})
	}
}

// Signals that arrive faster than they are processed end the connection before they fill the
// memory.
func TestRemote_EndlessSignals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := newBus(t, nil)
		c, err := bus.dial(t.Context())
		require.NoError(t, err)
		events, err := c.Watch(t.Context())
		require.NoError(t, err)
		one := encode(t, dbus.TypeSignal, signal(dbusapi.ManagerPath, dbusapi.ManagerInterface, "SessionRemoved"),
			strings.Repeat("x", 64<<10), dbusapi.ManagerPath)
		sent := 0
		for range 10 * maxPendingSignals / len(one) {
			if _, err := bus.out.Write(one); err != nil {
				break
			}
			sent += len(one)
		}
		assert.Less(t, sent, 2*maxPendingSignals)
		for range events { // what was received before; then the channel is closed
		}
		_ = c.Close()

		// Any number of them is processed.
		c, err = bus.dial(t.Context())
		require.NoError(t, err)
		events, err = c.Watch(t.Context())
		require.NoError(t, err)
		for range 2 * maxPendingSignals / len(one) {
			bus.write(one)
			_, open := <-events
			require.True(t, open)
			synctest.Wait()
		}
		_ = c.Close()
	})
}

// FuzzRemote_Messages checks that this process continues whatever another machine sends after the
// authentication.
func FuzzRemote_Messages(f *testing.F) {
	t := &testing.T{}
	for _, seed := range [][]byte{
		encode(t, dbus.TypeSignal, signal(dbusapi.ManagerPath, dbusapi.ManagerInterface, "SessionNew"),
			"shop", dbusapi.ManagerPath),
		encode(t, dbus.TypeSignal, signal("/x", propertiesInterface, "PropertiesChanged"), dbusapi.SessionInterface,
			map[string]dbus.Variant{"State": dbus.MakeVariant("failed"), "Labels": dbus.MakeVariant(map[string]string{})},
			[]string{"Attention"}),
		encode(t, dbus.TypeMethodReply, map[dbus.HeaderField]any{dbus.FieldReplySerial: uint32(3)}, rows("shop")...),
		encode(t, dbus.TypeMethodReply, map[dbus.HeaderField]any{dbus.FieldReplySerial: uint32(3)},
			map[dbus.ObjectPath]map[string]map[string]dbus.Variant{"/x": {dbusapi.SessionInterface: sessionProperties("x")}}),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		synctest.Test(t, func(t *testing.T) {
			bus := newBus(t, nil)
			c, err := bus.dial(t.Context())
			require.NoError(t, err)
			c2 := ConnectHosts(t.Context(), Host{Name: "a", Connected: c, Dial: bus.dial})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			events, err := c2.Watch(ctx)
			require.NoError(t, err)
			go bus.write(sent)
			go func() { _, _ = c2.Sessions(ctx) }()
			for range events { // until ctx is done
			}
			_ = c2.Close()
		})
	})
}
