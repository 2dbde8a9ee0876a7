package sources

import (
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/fdpoll"
)

// Poller reports pidfds and sockets that are ready: a fdpoll.Poller. Run calls f on the goroutine
// that called it, until Close.
type Poller interface {
	Add(fd int, key fdpoll.Key) error
	Rearm(fd int, key fdpoll.Key) error
	Remove(fd int) error
	Run(f func(fdpoll.Key))
	Close() error
}

// Descriptor is a file descriptor that the event loop waits for. The zero value stands for none. No
// two descriptors are equal, also if the kernel uses a number again.
type Descriptor struct {
	fd  int // valid if key is not 0
	key fdpoll.Key
}

// IsOpen reports whether there is a descriptor.
func (d Descriptor) IsOpen() bool { return d.key != 0 }

// FD returns the number of a descriptor for which IsOpen returns true.
func (d Descriptor) FD() int { return d.fd }

// Descriptors are the descriptors that the event loop waits for.
type Descriptors struct {
	poller  Poller
	onReady map[fdpoll.Key]func() // called when the descriptor is ready
	lastKey fdpoll.Key
}

// NewDescriptors returns Descriptors without any. The caller passes the keys that the poller
// reports to Handle.
func NewDescriptors(p Poller) *Descriptors {
	return &Descriptors{poller: p, onReady: map[fdpoll.Key]func(){}}
}

// Poller returns what reports that descriptors are ready.
func (d *Descriptors) Poller() Poller { return d.poller }

// Watch has Handle call f once fd is ready, and after that once for each Rearm. The descriptor
// belongs to d from now on; if an error is returned, it was closed.
func (d *Descriptors) Watch(fd int, f func()) (Descriptor, error) {
	d.lastKey++
	added := Descriptor{fd, d.lastKey}
	if err := d.poller.Add(fd, added.key); err != nil {
		_ = unix.Close(fd)
		return Descriptor{}, err
	}
	d.onReady[added.key] = f
	return added, nil
}

// Rearm makes the poller report an open descriptor once when it is ready, whether or not it has
// reported it before.
func (d *Descriptors) Rearm(open Descriptor) error { return d.poller.Rearm(open.fd, open.key) }

// Close closes a descriptor, if there is one, and sets it to the zero value.
func (d *Descriptors) Close(open *Descriptor) {
	if !open.IsOpen() {
		return
	}
	_ = d.poller.Remove(open.fd)
	_ = unix.Close(open.fd)
	delete(d.onReady, open.key)
	*open = Descriptor{}
}

// Handle calls the function of the descriptor with this key, unless the descriptor was closed.
func (d *Descriptors) Handle(k fdpoll.Key) {
	if f := d.onReady[k]; f != nil {
		f()
	}
}
