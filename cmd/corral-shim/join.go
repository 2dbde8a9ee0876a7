package main

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/shimwire"
)

// joinPane passes its terminal to the shim that listens at path, notifies that shim when the size
// changes, and waits until the agent has ended or the shim has closed the connection. It returns
// the exit code.
func joinPane(path string) int {
	unblockSignals()
	resized := make(chan os.Signal, 1)
	// SIGHUP too: the other shim notices the hangup by itself and closes the connection
	signal.Notify(make(chan os.Signal, 1), caughtSignals...)
	fd, err := shimwire.DialWait(path)
	if err != nil {
		printError("cannot reach the agent: " + err.Error())
		return exitFailure
	}
	p := openPane(0)
	if !p.isOpen() {
		printError("cannot join the agent: standard input is not a terminal")
		return exitFailure
	}
	p.makeRaw() // before the other shim does it, or an early ^C would end this process
	join := shimwire.Message{Kind: shimwire.Join, Data: []byte(os.Getenv("TMUX"))}
	if err := unix.Sendmsg(fd, join.Append(nil), unix.UnixRights(p.fd), nil, unix.MSG_NOSIGNAL); err != nil {
		p.release()
		printError("cannot join the agent: " + err.Error())
		return exitFailure
	}
	signal.Notify(resized, unix.SIGWINCH)
	go func() {
		m := shimwire.Message{Kind: shimwire.Resized}
		b := m.Append(nil)
		for range resized {
			_ = sysSend(fd, b)
		}
	}()
	code := awaitExitCode(fd)
	p.release()
	return code
}

// awaitExitCode reads messages until the shim closes the connection, and returns the exit code.
func awaitExitCode(fd int) int {
	code, b := exitFailure, make([]byte, shimwire.MaxMessage)
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
