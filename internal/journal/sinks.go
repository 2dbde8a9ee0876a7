package journal

import (
	"net"
	"os"
	"sync"
)

// socket sends records to journald. The socket is connected: while journald does not read, the
// kernel reports an unconnected socket as writable although it refuses every datagram, and the
// sender would try again without a pause. A connection normally lasts, because systemd keeps
// journald's socket open while journald restarts. If it breaks, the next record reconnects.
type socket struct {
	path string

	mu      sync.Mutex // protects conn and stopped; not held during a write
	conn    *net.UnixConn
	stopped bool
}

func (s *socket) write(record []byte) error {
	conn, fresh, err := s.connection()
	if err != nil {
		return err
	}
	if _, err = conn.Write(record); err == nil || fresh {
		return err
	}
	s.disconnect(conn)
	if conn, _, err = s.connection(); err != nil {
		return err
	}
	_, err = conn.Write(record)
	return err
}

// connection returns the existing connection, or a new one.
func (s *socket) connection() (conn *net.UnixConn, fresh bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil, false, net.ErrClosed
	}
	if s.conn != nil {
		return s.conn, false, nil
	}
	s.conn, err = net.DialUnix("unixgram", nil, &net.UnixAddr{Name: s.path, Net: "unixgram"})
	return s.conn, true, err
}

func (s *socket) disconnect(conn *net.UnixConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = conn.Close()
	if s.conn == conn {
		s.conn = nil
	}
}

func (s *socket) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	if s.conn != nil {
		_ = s.conn.Close()
	}
}

// stream writes lines to standard error. It does not close that file, because it does not own it;
// therefore a write may still block when the process ends.
type stream struct{ file *os.File }

func (s *stream) write(record []byte) error {
	_, err := s.file.Write(record)
	return err
}

func (s *stream) stop() {}
