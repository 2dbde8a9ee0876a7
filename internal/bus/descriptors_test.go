package bus_test

import (
	"errors"
	"io"
	"os"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/internal/testbed"
)

// TestGuarded_ReceivesDescriptorsOfAnswers: file descriptors in replies are received correctly
// while another connection sends messages with descriptors, which are closed, and messages that
// godbus cannot decode.
func TestGuarded_ReceivesDescriptorsOfAnswers(t *testing.T) {
	service, other := testbed.Bus(t), testbed.Bus(t)
	read, write, err := os.Pipe()
	require.NoError(t, err)
	defer func() { _, _ = read.Close(), write.Close() }()
	readFD, writeFD := dbus.UnixFD(read.Fd()), dbus.UnixFD(write.Fd())
	require.NoError(t, service.ExportMethodTable(map[string]any{
		"One":  func() (dbus.UnixFD, *dbus.Error) { return writeFD, nil },
		"Text": func() (string, *dbus.Error) { return "text", nil },
		"Fail": func() *dbus.Error { return dbus.MakeFailedError(errors.New("it fails")) },
	}, "/a", "a.b"))
	conn, err := bus.DialGuarded(t.Context(), os.Getenv("DBUS_SESSION_BUS_ADDRESS"), nil)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	object := conn.Object(service.Names()[0], "/a")
	var text string
	require.NoError(t, object.Call("a.b.Text", 0).Store(&text))
	before := countDescriptors(t)
	for range 20 {
		for _, body := range [][]any{
			{[]dbus.UnixFD{readFD, readFD}}, {readFD}, {dbus.MakeVariant(readFD)}, {"text", readFD},
			{nested([]string{}, 63)}, {nested(map[string]string{}, 62)}, nil,
		} {
			testbed.SendSignal(t, other, conn.Names()[0], "/a", "a.b.C", body...)
		}
		var fd dbus.UnixFD
		require.NoError(t, object.Call("a.b.One", 0).Store(&fd))
		file := os.NewFile(uintptr(fd), "received")
		_, err = file.WriteString("x")
		require.NoError(t, err)
		require.NoError(t, file.Close())
		_, err = io.ReadFull(read, make([]byte, 1))
		require.NoError(t, err, "the descriptor is the write end of this pipe")
		require.NoError(t, object.Call("a.b.Text", 0).Store(&text))
		require.Error(t, object.Call("a.b.Fail", 0).Err)
	}
	assert.Equal(t, before, countDescriptors(t), "every descriptor is closed")
}
