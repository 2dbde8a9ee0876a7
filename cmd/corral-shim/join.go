package main

import (
	"os"
	"os/signal"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/shimwire"
)

// joinPane hands the terminal that it runs in to the shim that listens at path, tells that one when
// its size changes, and stays until the agent has ended or the shim has let go of the terminal. It
// returns the code to exit with.
func joinPane(path string) int {
	unblockSignals()
	resized := make(chan os.Signal, 1)
	signal.Notify(make(chan os.Signal, 1), survived...) // a hangup too: the shim is told of that by the terminal, and ends this connection
	fd, err := dial(path)
	if err != nil {
		complain("cannot reach the agent: " + err.Error())
		return exitBroken
	}
	p := openPane(0)
	if !p.there() {
		complain("cannot join the agent: standard input is not a terminal")
		return exitBroken
	}
	p.makeRaw() // before the other shim does, or an early ^C would end this one
	join := shimwire.Message{Kind: shimwire.Join, Data: []byte(os.Getenv("TMUX"))}
	if err := unix.Sendmsg(fd, join.Append(nil), unix.UnixRights(p.fd), nil, unix.MSG_NOSIGNAL); err != nil {
		p.release()
		complain("cannot join the agent: " + err.Error())
		return exitBroken
	}
	signal.Notify(resized, unix.SIGWINCH)
	go func() {
		m := shimwire.Message{Kind: shimwire.Resized}
		b := m.Append(nil)
		for range resized {
			_ = sysSend(fd, b)
		}
	}()
	code := awaitEnd(fd)
	p.release()
	return code
}

// dial connects to the socket at path, which may be longer than an address can be.
func dial(path string) (int, error) {
	dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: filepath.Dir(path), Err: err}
	}
	defer func() { _ = unix.Close(dir) }()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	err = unix.Connect(fd, &unix.SockaddrUnix{Name: "/proc/self/fd/" + strconv.Itoa(dir) + "/" + filepath.Base(path)})
	return fd, os.NewSyscallError("connect", err)
}

// awaitEnd reads what the shim says until that ends the connection.
func awaitEnd(fd int) int {
	code, b := exitBroken, make([]byte, shimwire.MaxMessage)
	for {
		n, _, err := unix.Recvfrom(fd, b, 0)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil || n == 0:
			return code
		}
		if m, err := shimwire.ParseMessage(b[:n]); err == nil && m.Kind == shimwire.Ended {
			code = int(m.Seq & 0xff)
		}
	}
}
