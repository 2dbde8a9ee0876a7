// Package hosts determines which machines a command line is about, and connects to their buses with
// ssh(1) and systemd-stdio-bridge(1).
package hosts

import (
	"fmt"
	"slices"
	"strings"

	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/internal/config"
)

// Host is a machine. The zero value is this machine.
type Host struct {
	Name        string // in ids, NAME:ID; "" if ids have no host
	Destination string // of ssh(1); "" for this machine and for Machine
	Machine     string // as in systemctl --user --machine=: a local container, or USER@ on this machine
}

// IsLocal reports whether it is the bus of this user on this machine.
func (h Host) IsLocal() bool { return h.Destination == "" && h.Machine == "" }

// String returns how messages call the host.
func (h Host) String() string {
	switch {
	case h.Name != "":
		return h.Name
	case h.IsLocal():
		return "this machine"
	}
	return h.Destination + h.Machine
}

// Select returns the hosts that a command line is about. Given are the values of --host=, which
// may be names of Hosts= and groups; words are ids and patterns, which may begin with a host. If
// nothing names a host, it returns none: the command line is about this machine. Otherwise ids
// without a host are about the given hosts, or about this machine.
//
// A single host is returned without a name, as long as no word names it.
func Select(given, words []string, configured config.Hosts) ([]Host, error) {
	given = slices.Compact(slices.Clone(given)) // a completion has read the options twice
	var selected []Host
	add := func(name string) error {
		h, err := find(name, configured)
		if err == nil && !slices.Contains(selected, h) {
			selected = append(selected, h)
		}
		return err
	}
	if len(given) == 1 && !isGroup(given[0]) && !slices.ContainsFunc(words, isQualified) {
		h, err := single(given[0], configured)
		if err != nil || h.IsLocal() {
			return nil, err
		}
		return []Host{h}, nil
	}
	for _, name := range given {
		members, err := expand(name, configured)
		if err != nil {
			return nil, err
		}
		for _, member := range members {
			if err := add(member); err != nil {
				return nil, err
			}
		}
	}
	for _, word := range words {
		name, _ := client.SplitID(word)
		switch {
		case isQualified(word):
			if err := add(name); err != nil {
				return nil, err
			}
		case len(given) == 0:
			_ = add(config.LocalHost)
		}
	}
	if len(selected) == 1 && selected[0].IsLocal() {
		return nil, nil
	}
	return selected, nil
}

func isGroup(name string) bool { return strings.HasPrefix(name, "@") }

// isQualified reports whether an id or a pattern names its host.
func isQualified(word string) bool { return strings.Contains(word, ":") }

// find returns the host with a name, which is one of Hosts= or a destination of ssh.
func find(name string, configured config.Hosts) (Host, error) {
	if name == config.LocalHost {
		return Host{}, nil
	}
	if !config.IsHostName(name) {
		return Host{}, fmt.Errorf("invalid host %q: expected HOST or USER@HOST", name)
	}
	h := Host{Name: name, Destination: name}
	if destination := configured.Destinations[name]; destination != "" {
		h.Destination = destination
	}
	return h, nil
}

// single returns a host whose ids need no name. It may be any destination of ssh.
func single(name string, configured config.Hosts) (Host, error) {
	if name == "" || strings.HasPrefix(name, "-") {
		return Host{}, fmt.Errorf("invalid host %q: expected HOST or USER@HOST", name)
	}
	h, err := find(name, configured)
	if err != nil {
		h.Destination = name
	}
	h.Name = ""
	return h, nil
}

// expand returns the names of the hosts of a group, or of one host.
func expand(name string, configured config.Hosts) ([]string, error) {
	group, is := strings.CutPrefix(name, "@")
	if !is {
		return []string{name}, nil
	}
	if group == config.GroupOfAll {
		return append([]string{config.LocalHost}, configured.Names...), nil
	}
	members := configured.Groups[group]
	if members == nil {
		return nil, fmt.Errorf("unknown group %q: Hosts= in corral.conf does not have it", name)
	}
	return members, nil
}

// ID returns an id on the host as an id among several hosts.
func (h Host) ID(id string) string {
	if h.Name == "" {
		return id
	}
	return h.Name + ":" + id
}
