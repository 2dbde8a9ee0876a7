package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// stream is one end of the way to a bus on another machine.
type stream struct {
	io.Reader
	io.WriteCloser
}

// farBus plays a bus that is reached after some time, and answers so many lines of the
// authentication.
func farBus(t *testing.T, after time.Duration, lines int) stream {
	fromClient, toBus := io.Pipe()
	fromBus, toClient := io.Pipe()
	go func() {
		defer func() { _ = toClient.Close() }()
		in := bufio.NewReader(fromClient)
		<-time.After(after)
		for ; lines > 0; lines-- {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			answer := "OK 0123456789abcdef0123456789abcdef\r\n"
			switch strings.Trim(line, "\x00\r\n") {
			case "AUTH":
				answer = "REJECTED EXTERNAL\r\n"
			case "BEGIN":
				hello, err := dbus.DecodeMessage(in)
				assert.NoError(t, err)
				var reply bytes.Buffer
				assert.NoError(t, (&dbus.Message{
					Type: dbus.TypeMethodReply,
					Headers: map[dbus.HeaderField]dbus.Variant{
						dbus.FieldReplySerial: dbus.MakeVariant(hello.Serial()), dbus.FieldSignature: dbus.MakeVariant(dbus.SignatureOf("")),
					},
					Body: []any{":1.7"},
				}).EncodeTo(&reply, binary.LittleEndian))
				answer = reply.String()
			}
			_, _ = io.WriteString(toClient, answer)
		}
		_, _ = io.Copy(io.Discard, in)
	}()
	return stream{fromBus, toBus}
}

// Who connects over ssh may have to type a password first.
func TestConnectOver_WaitsForASlowStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus, err := ConnectOver(context.Background(), farBus(t, 2*time.Minute, 10))
		require.NoError(t, err)
		require.NoError(t, bus.Close())
	})
}

func TestConnectOver_TimesOutOnASilentBus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, err := ConnectOver(context.Background(), farBus(t, 2*time.Minute, 1))
		require.ErrorContains(t, err, "no answer within 10s")
		assert.Equal(t, 2*time.Minute+connectTimeout, time.Since(began))
	})
}
