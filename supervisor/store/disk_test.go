package store

import (
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// memory is a file system in memory that simulates power cuts by the rules of the kernel: the data
// of a file and the names in a directory are certain to survive only if that very file or directory
// was synced. Every other change has reached the disk or not, independently of the others and in
// any order: also each half of a rename, as on file systems without a journal. Of data, any part
// may have reached the disk, or NUL bytes in its place. The states that a journal permits are among
// these.
type memory struct {
	inodes    []*inode // the first is the root
	open      map[int]*inode
	callsLeft int   // system calls until the power is cut, or until one fails
	fault     error // the error of that system call; nil for a power cut
	calls     int   // number of system calls so far that could change something
}

type inode struct {
	names   map[string]int   // of a directory: numbers of inodes; nil for a file
	synced  map[string]int   // names that are on disk
	changes map[string][]int // the inodes that each name has had since the last sync, 0 if the name was removed
	data    string           // of a file
	disk    string           // the data that is on disk
}

// cut is the value of the panic that simulates a power cut.
type cut struct{}

const never = 1 << 30

func newMemory() *memory {
	m := &memory{inodes: []*inode{directory()}, open: map[int]*inode{}, callsLeft: never}
	for _, path := range []string{"/state", "/state/sessions"} {
		if err := m.Mkdir(path, 0o700); err != nil {
			panic(err)
		}
	}
	return m.flushed()
}

func directory() *inode {
	return &inode{names: map[string]int{}, synced: map[string]int{}, changes: map[string][]int{}}
}

// flushed returns a copy in which everything is on disk.
func (m *memory) flushed() *memory {
	c := &memory{open: map[int]*inode{}, callsLeft: never}
	for _, n := range m.inodes {
		d := &inode{data: n.data, disk: n.data}
		if n.names != nil {
			d = &inode{names: maps.Clone(n.names), synced: maps.Clone(n.names), changes: map[string][]int{}}
		}
		c.inodes = append(c.inodes, d)
	}
	return c
}

// outcome is a change that was not synced, with the states in which a power cut may leave it.
type outcome struct {
	count int
	apply func(m *memory, state int)
}

// afterPowerCut calls f with each state in which the file system may be after a power cut now.
func (m *memory) afterPowerCut(f func(*memory)) {
	base := m.flushed()
	var outcomes []outcome
	for i, n := range m.inodes {
		if n.names == nil {
			if n.data != n.disk {
				states := slices.Compact([]string{n.disk, n.data[:len(n.data)/2], strings.Repeat("\x00", len(n.data)), n.data})
				outcomes = append(outcomes, outcome{len(states), func(m *memory, state int) {
					m.inodes[i].data = states[state]
					m.inodes[i].disk = states[state]
				}})
			}
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(n.changes)) {
			states := append([]int{n.synced[name]}, n.changes[name]...)
			slices.Sort(states)
			states = slices.Compact(states)
			outcomes = append(outcomes, outcome{len(states), func(m *memory, state int) {
				d := m.inodes[i]
				delete(d.names, name)
				if states[state] != 0 {
					d.names[name] = states[state]
				}
				d.synced = maps.Clone(d.names)
			}})
		}
	}
	var each func(m *memory, rest []outcome)
	each = func(m *memory, rest []outcome) {
		if len(rest) == 0 {
			f(m)
			return
		}
		for state := range rest[0].count {
			c := m.flushed()
			rest[0].apply(c, state)
			each(c, rest[1:])
		}
	}
	each(base, outcomes)
}

// runWithCut calls do and cuts the power before its nth system call (from 0) that changes
// something. It returns false if do returns before that.
func (m *memory) runWithCut(n int, do func()) (cutShort bool) {
	m.callsLeft = n
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(cut); !ok {
				panic(r)
			}
			cutShort = true
		}
		m.callsLeft = never
	}()
	do()
	return false
}

func (m *memory) step() error {
	if m.callsLeft == 0 {
		if m.fault == nil {
			panic(cut{})
		}
		m.callsLeft = never
		return m.fault
	}
	m.callsLeft--
	m.calls++
	return nil
}

func (m *memory) find(path string) (number int, err error) {
	for name := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		d := m.inodes[number]
		if d.names == nil || d.names[name] == 0 {
			return 0, fs.ErrNotExist
		}
		number = d.names[name]
	}
	return number, nil
}

// parent returns the directory that contains path, and the name of path there.
func (m *memory) parent(path string) (*inode, string, error) {
	number, err := m.find(filepath.Dir(path))
	if filepath.Dir(path) == "/" {
		number, err = 0, nil
	}
	return m.inodes[number], filepath.Base(path), err
}

func (d *inode) set(name string, number int) {
	d.changes[name] = append(d.changes[name], number)
	d.names[name] = number
	if number == 0 {
		delete(d.names, name)
	}
}

func (m *memory) add(n *inode) int {
	m.inodes = append(m.inodes, n)
	return len(m.inodes) - 1
}

func (m *memory) descriptor(n *inode) int {
	fd := len(m.open) + 3
	m.open[fd] = n
	return fd
}

func (m *memory) Open(path string, _ int, _ uint32) (int, error) {
	number, err := m.find(path)
	if err != nil {
		return -1, err
	}
	return m.descriptor(m.inodes[number]), nil
}

func (m *memory) Openat(dir int, name string, flags int, _ uint32) (int, error) {
	d := m.open[dir]
	if flags != unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC {
		return -1, unix.EINVAL
	}
	if d.names[name] != 0 {
		return -1, unix.EEXIST
	}
	if err := m.step(); err != nil {
		return -1, err
	}
	n := &inode{}
	d.set(name, m.add(n))
	return m.descriptor(n), nil
}

func (m *memory) Fchmod(int, uint32) error                  { return nil }
func (m *memory) Fallocate(int, uint32, int64, int64) error { return m.step() }
func (m *memory) Close(int) error                           { return nil }

func (m *memory) Write(fd int, content []byte) (int, error) {
	if err := m.step(); err != nil {
		return 0, err
	}
	m.open[fd].data += string(content)
	return len(content), nil
}

func (m *memory) Fsync(fd int) error {
	if err := m.step(); err != nil {
		return err
	}
	n := m.open[fd]
	n.disk = n.data
	if n.names != nil {
		n.synced, n.changes = maps.Clone(n.names), map[string][]int{}
	}
	return nil
}

func (m *memory) Renameat(olddir int, oldname string, newdir int, newname string) error {
	if olddir == unix.AT_FDCWD {
		return m.Rename(oldname, newname)
	}
	return m.rename(m.open[olddir], oldname, m.open[newdir], newname)
}

func (m *memory) rename(from *inode, oldname string, to *inode, newname string) error {
	number := from.names[oldname]
	if number == 0 {
		return fs.ErrNotExist
	}
	if to.names[newname] == number { // rename(2) does nothing if both are names of the same inode
		return nil
	}
	if err := m.step(); err != nil {
		return err
	}
	to.set(newname, number)
	from.set(oldname, 0)
	return nil
}

func (m *memory) Unlinkat(dir int, name string, _ int) error { return m.unlink(m.open[dir], name) }

func (m *memory) unlink(d *inode, name string) error {
	if d.names[name] == 0 {
		return unix.ENOENT
	}
	if err := m.step(); err != nil {
		return err
	}
	d.set(name, 0)
	return nil
}

func (m *memory) Mkdir(path string, _ uint32) error {
	d, name, err := m.parent(path)
	if err != nil {
		return err
	}
	if d.names[name] != 0 {
		return fs.ErrExist
	}
	if err := m.step(); err != nil {
		return err
	}
	d.set(name, m.add(directory()))
	return nil
}

func (m *memory) Link(oldpath, newpath string) error {
	number, err := m.find(oldpath)
	if err != nil {
		return err
	}
	d, name, err := m.parent(newpath)
	if err != nil {
		return err
	}
	if err := m.step(); err != nil {
		return err
	}
	d.set(name, number)
	return nil
}

func (m *memory) Rename(oldpath, newpath string) error {
	from, oldname, err := m.parent(oldpath)
	if err != nil {
		return err
	}
	to, newname, err := m.parent(newpath)
	if err != nil {
		return err
	}
	return m.rename(from, oldname, to, newname)
}

func (m *memory) Unlink(path string) error {
	d, name, err := m.parent(path)
	if err != nil {
		return err
	}
	return m.unlink(d, name)
}

func (m *memory) RemoveAll(path string) error {
	number, err := m.find(path)
	if err != nil {
		return nil //nolint:nilerr // as os.RemoveAll does if there is no such file
	}
	for _, name := range slices.Sorted(maps.Keys(m.inodes[number].names)) {
		if err := m.RemoveAll(path + "/" + name); err != nil {
			return err
		}
	}
	return m.Unlink(path)
}

func (m *memory) Exists(path string) bool {
	_, err := m.find(path)
	return err == nil
}

func (m *memory) Directories(path string) ([]string, error) {
	number, err := m.find(path)
	if err != nil {
		return nil, err
	}
	d := m.inodes[number]
	var names []string
	for _, name := range slices.Sorted(maps.Keys(d.names)) {
		if m.inodes[d.names[name]].names != nil {
			names = append(names, name)
		}
	}
	return names, nil
}

func (m *memory) Read(path string, _ int64) ([]byte, error) {
	number, err := m.find(path)
	if err != nil {
		return nil, err
	}
	return []byte(m.inodes[number].data), nil
}
