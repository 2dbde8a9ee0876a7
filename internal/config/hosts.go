package config

import (
	"fmt"
	"regexp"
	"strings"
)

// Hosts are the other machines that Hosts= names, and groups of them.
type Hosts struct {
	Names        []string            // in the order of the file
	Destinations map[string]string   // of ssh(1), by name
	Groups       map[string][]string // names, by the name of the group
}

// ParseHosts parses a value of Hosts=: words of the form NAME, NAME=DESTINATION or
// @GROUP=NAME,NAME. A host without a destination is reached by its name.
func ParseHosts(s string) (Hosts, error) {
	h := Hosts{Destinations: map[string]string{}, Groups: map[string][]string{}}
	for word := range strings.FieldsSeq(s) {
		name, value, assigned := strings.Cut(word, "=")
		group, isGroup := strings.CutPrefix(name, "@")
		switch {
		case isGroup && (!IsHostName(group) || value == "" || group == GroupOfAll):
			return Hosts{}, fmt.Errorf("invalid group %q: expected @GROUP=NAME,NAME, and a name other than %s", word, GroupOfAll)
		case isGroup:
			h.Groups[group] = strings.Split(value, ",")
			continue
		case !IsHostName(name):
			return Hosts{}, fmt.Errorf("invalid host %q: expected NAME or NAME=DESTINATION", word)
		case h.Destinations[name] != "":
			return Hosts{}, fmt.Errorf("host %q is named twice", name)
		case !assigned:
			value = name
		case value == "" || strings.HasPrefix(value, "-"):
			return Hosts{}, fmt.Errorf("invalid host %q: expected a destination for ssh after =", word)
		}
		h.Names = append(h.Names, name)
		h.Destinations[name] = value
	}
	for group, names := range h.Groups {
		for _, name := range names {
			if h.Destinations[name] == "" {
				return Hosts{}, fmt.Errorf("group %q has an unknown host %q", "@"+group, name)
			}
		}
	}
	return h, nil
}

// GroupOfAll is the name of the group of this machine and all hosts, which always exists.
const GroupOfAll = "all"

// LocalHost is the name of this machine among hosts, as in systemctl --machine=.host.
const LocalHost = ".host"

// IsHostName reports whether s can be the name of a host: a destination of ssh(1) that is not
// LocalHost, and that needs no quoting in a pattern, a list or a shell. A literal IPv6 address is
// not: it needs a name.
func IsHostName(s string) bool {
	return len(s) <= 255 && hostName.MatchString(s)
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9_+][A-Za-z0-9@._+-]*$`)
