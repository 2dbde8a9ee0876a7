package supervisor

import (
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/tcpport"
	"github.com/corrald/corral/supervisor/session"
)

// reservePorts selects a block of ports that no other session has, and that no program uses now.
// The search begins at a port that follows from the id, so that a session which is created again
// usually gets the same ports. The record of the session reserves them until it is archived or
// removed. It is called on the event loop: binding a socket does not block. Errors: OverLimit.
func (l *loop) reservePorts(id string, count int, variable string) (session.Ports, error) {
	if count == 0 {
		return session.Ports{}, nil
	}
	var taken []session.Ports
	for _, e := range l.sessions.byID {
		if p := e.rec.Ports; p.Count > 0 && e.rec.Archived.IsZero() {
			taken = append(taken, p)
		}
	}
	r := l.settings.config.PortRange
	blocks := (r.Last - r.First + 1) / count
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(id))
	for n := range blocks {
		first := r.First + (int(hash.Sum32()%uint32(blocks))+n)%blocks*count
		p := session.Ports{First: uint16(first), Count: uint16(count), Variable: variable}
		if !slices.ContainsFunc(taken, p.Overlaps) && len(portsInUse(p)) == 0 {
			return p, nil
		}
	}
	return session.Ports{}, refuse(OverLimit, "PortRange=%s has no %d free ports in a row", r, count)
}

// portsInUse returns the ports of the block that a program uses now.
func portsInUse(p session.Ports) []uint16 {
	return slices.DeleteFunc(p.All(), tcpport.IsFree)
}

// countPorts returns how many ports a new session gets: as many as the client has specified, else
// as many as are configured for its repository.
func (s *Spec) countPorts() int {
	if s.Ports != nil {
		return int(*s.Ports)
	}
	return s.determined.repository.Ports
}

// checkPorts publishes a problem if another program uses ports of the session, whose run is about
// to start. The ports are kept: the program may belong to the session, such as a container. Any
// goroutine but the event loop may call it.
func (s *runStart) checkPorts(run string, p session.Ports) {
	used := portsInUse(p)
	if len(used) == 0 {
		return
	}
	e := s.e
	e.postFor(run, func() {
		e.run.start.portsInUse = used
		e.loop.problems.stale = true
		e.loop.log.Warn("a program uses ports that are reserved for a session", "session", e.rec.ID, "ports", used)
	})
}

// portProblem returns the text of the problem that ports of the session are in use.
func (s *runStart) portProblem() string {
	return fmt.Sprintf("when its run began, a program used port %d, which is reserved for it: "+
		"find it with ss -ltnp sport = :%d", s.portsInUse[0], s.portsInUse[0])
}

// portVariables returns the variables that name the session's ports, as NAME=VALUE.
func portVariables(p session.Ports) []string {
	if p.Count == 0 {
		return nil
	}
	variables := []string{fmt.Sprintf("CORRAL_PORT=%d", p.First)}
	if p.Variable != "" {
		variables = append(variables, fmt.Sprintf("%s=%d", p.Variable, p.First))
	}
	return variables
}

// checkPortCount returns an error if a client requests too many ports. Errors: OverLimit.
func checkPortCount(count *uint32) error {
	if count != nil && *count > config.MaxPorts {
		return refuse(OverLimit, "too many ports: at most %d are allowed", config.MaxPorts)
	}
	return nil
}
