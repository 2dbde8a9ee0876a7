// Package ready receives the notification of a systemd, of a machine or of a user, that it has
// started.
package ready

import (
	"fmt"
	"net"
	"os"
	"strings"
)

// Listen creates the socket that NOTIFY_SOCKET of a systemd has to name. The channel receives nil
// when systemd sends READY=1: the manager of a machine after the boot, the manager of a user once
// basic.target is active. The socket is closed before: systemd, which also sends the progress of
// jobs, would wait once it is full.
func Listen(path string) (<-chan error, error) {
	if err := os.RemoveAll(path); err != nil { // from the previous boot
		return nil, fmt.Errorf("cannot remove the notification socket: %w", err)
	}
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err == nil {
		err = os.Chmod(path, 0o666)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot make the notification socket: %w", err)
	}
	ready := make(chan error, 1)
	go func() {
		for message := make([]byte, 4096); ; {
			n, err := socket.Read(message)
			if err != nil || strings.Contains("\n"+string(message[:n])+"\n", "\nREADY=1\n") {
				_ = socket.Close()
				ready <- err
				return
			}
		}
	}()
	return ready, nil
}
