package journal

import (
	"sync"
	"time"
)

const (
	maxRecords   = 4096        // that wait
	maxBytes     = 1 << 20     // of those together
	closeTimeout = time.Second // for writing out what waits, at the end
)

// sink takes records, and may block while it does.
type sink interface {
	write(record []byte) error
	// stop makes a write that blocks return, if that is possible, and every later one fail. It may be
	// called during one.
	stop()
}

// queue keeps records for its one writer, a goroutine, which alone waits for the sink. Its mutex is
// never held while somebody waits.
type queue struct {
	sink   sink
	notice func(dropped uint64) []byte // the record that tells of lost ones
	done   chan struct{}               // closed when the writer has ended

	mu      sync.Mutex
	more    sync.Cond // signalled when records or closed change
	records [][]byte
	bytes   int
	dropped uint64 // records lost that nobody was told of yet
	closed  bool
}

func newQueue(s sink, notice func(uint64) []byte) *queue {
	q := &queue{sink: s, notice: notice, done: make(chan struct{})}
	q.more.L = &q.mu
	go q.run()
	return q
}

// add queues a record, or counts it as lost if there is no room. It never waits.
func (q *queue) add(record []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || len(q.records) >= maxRecords || q.bytes+len(record) > maxBytes {
		q.dropped++
		return
	}
	q.records = append(q.records, record)
	q.bytes += len(record)
	q.more.Signal()
}

// next waits for a record; ok is false when there will be none.
func (q *queue) next() (record []byte, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.records) == 0 && !q.closed {
		q.more.Wait()
	}
	if len(q.records) == 0 {
		return nil, false
	}
	record = q.records[0]
	q.records[0] = nil
	q.records = q.records[1:]
	q.bytes -= len(record)
	return record, true
}

func (q *queue) run() {
	defer close(q.done)
	for {
		record, ok := q.next()
		if !ok {
			return
		}
		if q.sink.write(record) != nil {
			q.lost(1)
			continue
		}
		q.tellLost()
	}
}

// tellLost follows a record that went through with the count of those before it that did not.
func (q *queue) tellLost() {
	q.mu.Lock()
	n := q.dropped
	q.dropped = 0
	q.mu.Unlock()
	if n > 0 && q.sink.write(q.notice(n)) != nil {
		q.lost(n)
	}
}

func (q *queue) lost(n uint64) {
	q.mu.Lock()
	q.dropped += n
	q.mu.Unlock()
}

// Close writes out what waits, for a second at most, and ends the writer. Records that come later
// are lost.
func (q *queue) Close() error {
	q.mu.Lock()
	q.closed = true
	q.more.Signal()
	q.mu.Unlock()

	deadline := time.NewTimer(closeTimeout)
	defer deadline.Stop()
	select {
	case <-q.done:
	case <-deadline.C:
	}
	q.sink.stop()
	return nil
}
