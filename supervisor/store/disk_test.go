package store

import (
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// memory is a file system in memory, with the kernel's rules for what a power cut leaves: the data of a file, and the names in a directory, are there for
// certain only once that very file or directory was synced. What was not may have come to the disk or not, each by itself and in any order: the two halves
// of a rename, too, as on file systems without a journal; of data, any part, or NUL bytes in its place. Whatever a journal promises more is among it.
type memory struct {
	inodes []*inode // the first is the root
	open   map[int]*inode
	left   int   // system calls until the power is cut, or until one fails
	fails  error // instead of a power cut
	calls  int   // those that were made and could change something
}

type inode struct {
	names  map[string]int   // of a directory: numbers of inodes; nil if it is a file
	synced map[string]int   // what of it is on disk
	since  map[string][]int // what each name has been since then, 0 if it was none
	data   string           // of a file
	disk   string           // what of it is on disk
}

// cut is what a power cut panics with.
type cut struct{}

const never = 1 << 30

func newMemory() *memory {
	m := &memory{inodes: []*inode{directory()}, open: map[int]*inode{}, left: never}
	for _, path := range []string{"/state", "/state/sessions"} {
		if err := m.Mkdir(path, 0o700); err != nil {
			panic(err)
		}
	}
	return m.settled()
}

func directory() *inode {
	return &inode{names: map[string]int{}, synced: map[string]int{}, since: map[string][]int{}}
}

// settled returns a copy in which everything is on disk.
func (m *memory) settled() *memory {
	c := &memory{open: map[int]*inode{}, left: never}
	for _, n := range m.inodes {
		d := &inode{data: n.data, disk: n.data}
		if n.names != nil {
			d = &inode{names: maps.Clone(n.names), synced: maps.Clone(n.names), since: map[string][]int{}}
		}
		c.inodes = append(c.inodes, d)
	}
	return c
}

// outcome is one thing that a power cut may leave to be one way or another.
type outcome struct {
	ways int
	make func(m *memory, way int)
}

// afterPowerCut calls f with every file system that a power cut at this moment may leave.
func (m *memory) afterPowerCut(f func(*memory)) {
	base := m.settled()
	var open []outcome
	for i, n := range m.inodes {
		if n.names == nil {
			if n.data != n.disk {
				ways := slices.Compact([]string{n.disk, n.data[:len(n.data)/2], strings.Repeat("\x00", len(n.data)), n.data})
				open = append(open, outcome{len(ways), func(m *memory, way int) { m.inodes[i].data = ways[way]; m.inodes[i].disk = ways[way] }})
			}
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(n.since)) {
			ways := append([]int{n.synced[name]}, n.since[name]...)
			slices.Sort(ways)
			ways = slices.Compact(ways)
			open = append(open, outcome{len(ways), func(m *memory, way int) {
				d := m.inodes[i]
				delete(d.names, name)
				if ways[way] != 0 {
					d.names[name] = ways[way]
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
		for way := range rest[0].ways {
			c := m.settled()
			rest[0].make(c, way)
			each(c, rest[1:])
		}
	}
	each(base, open)
}

// cutAt does something and cuts the power before its nth system call that changes anything. It returns false if it came to its end before that.
func (m *memory) cutAt(n int, do func()) (cutShort bool) {
	m.left = n
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(cut); !ok {
				panic(r)
			}
			cutShort = true
		}
		m.left = never
	}()
	do()
	return false
}

func (m *memory) step() error {
	if m.left == 0 {
		if m.fails == nil {
			panic(cut{})
		}
		m.left = never
		return m.fails
	}
	m.left--
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

// parent returns the directory that a path is in, and its name there.
func (m *memory) parent(path string) (*inode, string, error) {
	number, err := m.find(filepath.Dir(path))
	if filepath.Dir(path) == "/" {
		number, err = 0, nil
	}
	return m.inodes[number], filepath.Base(path), err
}

func (d *inode) set(name string, number int) {
	d.since[name] = append(d.since[name], number)
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
		n.synced, n.since = maps.Clone(n.names), map[string][]int{}
	}
	return nil
}

func (m *memory) Renameat(olddir int, oldname string, newdir int, newname string) error {
	return m.rename(m.open[olddir], oldname, m.open[newdir], newname)
}

func (m *memory) rename(from *inode, oldname string, to *inode, newname string) error {
	number := from.names[oldname]
	if number == 0 {
		return fs.ErrNotExist
	}
	if to.names[newname] == number { // rename(2): both are names of one inode, and it does nothing
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
		return nil //nolint:nilerr // what is not there is removed, as os.RemoveAll has it
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
