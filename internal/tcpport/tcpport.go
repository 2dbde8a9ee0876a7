// Package tcpport determines whether TCP ports are in use.
package tcpport

import (
	"errors"

	"golang.org/x/sys/unix"
)

// IsFree reports whether a program could listen on the port, at 127.0.0.1, ::1 and any other
// address of this machine. It binds a socket to the port, of all addresses, and closes it again. It
// does not block. A port whose connections were closed a moment ago is free.
func IsFree(port uint16) bool {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	var address unix.Sockaddr = &unix.SockaddrInet6{Port: int(port)}
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0)
	} else { // the kernel has no IPv6
		address = &unix.SockaddrInet4{Port: int(port)}
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	}
	if err != nil {
		return true // out of descriptors: nothing is known about the port
	}
	defer func() { _ = unix.Close(fd) }()
	// With this option, connections in TIME_WAIT are no obstacle, but sockets that listen are.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	return !errors.Is(unix.Bind(fd, address), unix.EADDRINUSE)
}
