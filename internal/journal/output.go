package journal

import (
	"io"
	"log/slog"
	"net"
	"strconv"
	"sync/atomic"
	"time"
)

const (
	maxRecords   = 4096        // queued records
	maxBytes     = 1 << 20     // total size of the queued records
	closeTimeout = time.Second // for writing the queued records in close
)

// output is a destination of records. Only its goroutine waits for the destination.
type output struct {
	program string
	encode  encodeFunc
	to      io.Writer

	records chan []byte   // the queue; nil ends the goroutine
	bytes   atomic.Int64  // total size of the queued records
	dropped atomic.Uint64 // number of lost records that were not reported yet
	done    chan struct{} // closed when the goroutine has ended
}

func newOutput(program string, encode encodeFunc, to io.Writer) *output {
	o := &output{
		program: program, encode: encode, to: to,
		records: make(chan []byte, maxRecords), done: make(chan struct{}),
	}
	go o.run()
	return o
}

// add queues a record, or counts it as lost if the queue is full. It never blocks.
func (o *output) add(record []byte) {
	if o.bytes.Add(int64(len(record))) <= maxBytes {
		select {
		case o.records <- record:
			return
		default:
		}
	}
	o.bytes.Add(-int64(len(record)))
	o.dropped.Add(1)
}

// run writes the queued records. After a record was written successfully, it reports how many were
// lost before.
func (o *output) run() {
	defer close(o.done)
	for record := <-o.records; record != nil; record = <-o.records {
		o.bytes.Add(-int64(len(record)))
		if _, err := o.to.Write(record); err != nil {
			o.dropped.Add(1)
			continue
		}
		n := o.dropped.Swap(0)
		if n == 0 {
			continue
		}
		lost := []field{{"dropped", strconv.FormatUint(n, 10)}}
		if _, err := o.to.Write(o.encode(o.program, slog.LevelWarn, "log records were lost", lost)); err != nil {
			o.dropped.Add(n)
		}
	}
}

// close writes the queued records, for at most a second. Later records are lost. If the destination
// blocks, the goroutine blocks until the process ends.
func (o *output) close() {
	deadline := time.After(closeTimeout)
	select {
	case o.records <- nil:
	case <-deadline:
		return
	}
	select {
	case <-o.done:
	case <-deadline:
	}
}

// socket sends records to journald. The socket is connected: while journald does not read, the
// kernel reports an unconnected socket as writable although it refuses every datagram, and the
// sender would try again without a pause. A connection normally lasts, because systemd keeps
// journald's socket open while journald restarts. If it breaks, the next record reconnects.
type socket struct {
	path string
	conn *net.UnixConn
}

func (s *socket) Write(record []byte) (n int, err error) {
	if s.conn != nil {
		if n, err = s.conn.Write(record); err == nil {
			return n, nil
		}
		_ = s.conn.Close()
	}
	if s.conn, err = net.DialUnix("unixgram", nil, &net.UnixAddr{Name: s.path, Net: "unixgram"}); err != nil {
		return 0, err
	}
	return s.conn.Write(record)
}
