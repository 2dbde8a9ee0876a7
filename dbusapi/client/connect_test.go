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

// pipeStream is one end of a stream to a bus on another machine.
type pipeStream struct {
	io.Reader
	io.WriteCloser
}

// remoteBus returns a stream to a simulated bus. The bus begins to read after a delay, and replies
// to this number of lines of the authentication protocol.
func remoteBus(t *testing.T, after time.Duration, lines int) pipeStream {
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
						dbus.FieldReplySerial: dbus.MakeVariant(hello.Serial()),
						dbus.FieldSignature:   dbus.MakeVariant(dbus.SignatureOf("")),
					},
					Body: []any{":1.7"},
				}).EncodeTo(&reply, binary.LittleEndian))
				answer = reply.String()
			}
			_, _ = io.WriteString(toClient, answer)
		}
		_, _ = io.Copy(io.Discard, in)
	}()
	return pipeStream{fromBus, toBus}
}

// TestConnectOver_WaitsForASlowStream: a person may have to type a password for ssh before the bus
// replies.
func TestConnectOver_WaitsForASlowStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus, err := ConnectOver(context.Background(), remoteBus(t, 2*time.Minute, 10))
		require.NoError(t, err)
		require.NoError(t, bus.Close())
	})
}

func TestConnectOver_TimesOutOnASilentBus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		_, err := ConnectOver(context.Background(), remoteBus(t, 2*time.Minute, 1))
		require.ErrorContains(t, err, "no answer within 10s")
		assert.Equal(t, 2*time.Minute+connectTimeout, time.Since(start))
	})
}
