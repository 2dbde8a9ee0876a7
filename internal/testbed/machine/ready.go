package machine

import (
	"net"
	"os"
	"strings"
)

// readiness is the socket to which a machine's systemd sends READY=1 once the boot has finished
// (systemd's Container Interface, "Environment Variables").
type readiness struct {
	socket *net.UnixConn
	done   chan error
}

func listenForReady(path string) (*readiness, error) {
	if err := os.RemoveAll(path); err != nil { // from the previous boot
		return nil, err
	}
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return nil, err
	}
	r := &readiness{socket: socket, done: make(chan error, 1)}
	go r.listen()
	return r, nil
}

func (r *readiness) listen() {
	for message := make([]byte, 4096); ; {
		n, err := r.socket.Read(message)
		if err != nil || strings.Contains("\n"+string(message[:n])+"\n", "\nREADY=1\n") {
			r.done <- err
			return
		}
	}
}

func (r *readiness) close() { _ = r.socket.Close() }
