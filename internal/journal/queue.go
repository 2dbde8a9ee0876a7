package journal

import (
	"sync"
	"time"
)

const (
	maxRecords   = 4096        // queued records
	maxBytes     = 1 << 20     // total size of the queued records
	closeTimeout = time.Second // for writing the queued records in Close
)

// sink writes records. Writing may block.
type sink interface {
	write(record []byte) error
	// stop makes all later writes fail, and a blocking one return if possible. It may be called during
	// a write.
	stop()
}

// queue stores records until its goroutine has written them to the sink. Only that goroutine waits
// for the sink, and never while it holds the mutex.
type queue struct {
	sink   sink
	notice func(dropped uint64) []byte // returns the record that reports lost records
	done   chan struct{}               // closed when the goroutine has ended

	mu      sync.Mutex
	more    sync.Cond // signalled when records or closed change
	records [][]byte
	bytes   int
	dropped uint64 // number of lost records that were not reported yet
	closed  bool
}

func newQueue(s sink, notice func(uint64) []byte) *queue {
	q := &queue{sink: s, notice: notice, done: make(chan struct{})}
	q.more.L = &q.mu
	go q.run()
	return q
}

// add queues a record, or counts it as lost if the queue is full. It never blocks.
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

// next waits for a record and returns it. ok is false if the queue is closed and empty.
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
		q.reportLost()
	}
}

// reportLost writes the number of lost records, after a record was written successfully.
func (q *queue) reportLost() {
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

// Close writes the queued records, for at most a second, and ends the goroutine. Later records are
// lost.
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
