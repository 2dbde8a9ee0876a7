package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/testbed"
)

// untold are the properties of a session of whose changes nobody is told.
var untold = []string{"LastActivityTimestamp", "Runs", "ControlGroup", "MemoryCurrent", "MemoryPeak", "CPUUsageNSec", "TasksCurrent", "TotalRuntimeUSec"}

// cache is what a client has that keeps the properties of each object and follows the signals, as
// every proxy with a cache does.
type cache map[dbus.ObjectPath]facts

func (c cache) follow(s *dbus.Signal) {
	switch s.Name[strings.LastIndexByte(s.Name, '.')+1:] {
	case "InterfacesAdded":
		path, _ := s.Body[0].(dbus.ObjectPath)
		interfaces, _ := s.Body[1].(map[string]map[string]dbus.Variant)
		c[path] = maps.Clone(interfaces[dbusapi.SessionInterface])
	case "InterfacesRemoved":
		path, _ := s.Body[0].(dbus.ObjectPath)
		delete(c, path)
	case "PropertiesChanged":
		if c[s.Path] == nil {
			c[s.Path] = facts{}
		}
		values, _ := s.Body[1].(map[string]dbus.Variant)
		maps.Copy(c[s.Path], values)
		invalid, _ := s.Body[2].([]string)
		for _, name := range invalid {
			delete(c[s.Path], name)
		}
	}
}

// different tells what in a copy is not as the daemon says. What is not in the copy has to be asked
// for, and so is right.
func (c cache) different(path dbus.ObjectPath, now facts) (all []string) {
	for name, value := range c[path] {
		if is, there := now[name]; !slices.Contains(untold, name) && (!there || !reflect.DeepEqual(is.Value(), value.Value())) {
			all = append(all, fmt.Sprintf("%s %s: %v, and it is %v", path, name, value, is))
		}
	}
	return all
}

// TestPropertiesChanged_KeepsClientCachesCurrent, whatever several clients do with some sessions at
// once: no change is told to nobody.
func TestPropertiesChanged_KeepsClientCachesCurrent(t *testing.T) {
	d := startDaemon(t, "IdleAfterSec=100ms", "StopTimeoutSec=1s")
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	ids := []string{"a", "b", "c"}
	var clients sync.WaitGroup
	for n := range uint64(4) {
		random := rand.New(rand.NewPCG(seed, n))
		clients.Go(func() {
			for range 25 {
				s := &subject{d, t, ids[random.IntN(len(ids))]}
				s.doAnything(random)
				<-time.After(time.Duration(random.IntN(60)) * time.Millisecond)
			}
		})
	}
	clients.Wait()
	var wrong []string
	t.Cleanup(func() {
		if len(wrong) > 0 {
			t.Error(strings.Join(wrong, "\n"))
		}
	})
	testbed.Poll(t, "the copies are right", func() bool {
		c := cache{}
		signals, _ := d.heard.since(0)
		for _, s := range signals {
			c.follow(s)
		}
		wrong = nil
		for path := range c {
			iface := dbusapi.SessionInterface
			if path == dbusapi.ManagerPath {
				iface = dbusapi.ManagerInterface
			}
			var now facts
			if err := d.call(path, "org.freedesktop.DBus.Properties.GetAll", []any{iface}, &now); err != nil {
				wrong = append(wrong, err.Error())
			}
			wrong = append(wrong, c.different(path, now)...)
		}
		return len(wrong) == 0
	})
}

// doAnything has a client do something with the session. That it is refused is as good.
func (s *subject) doAnything(random *rand.Rand) {
	switch random.IntN(14) {
	case 0, 1, 2:
		_, _ = s.tryCreate(s.t, s.id, spec{"Command": []string{"sh", "-c", `printf "\a"; (sleep 1; exit 3) & sleep 0.` + fmt.Sprint(random.IntN(10)) + `; exit 3`}})
	case 3:
		_ = s.do("Stop", uint64(0))
	case 4:
		_ = s.do("Suspend")
	case 5:
		_ = s.do("Resume")
	case 6:
		_ = s.do("Restart")
	case 7:
		_ = s.do("Kill", "agent", int32(syscall.SIGKILL))
	case 8:
		_ = s.do("Freeze")
	case 9:
		_ = s.do("Thaw")
	case 10:
		_ = s.do("SetLabels", map[string]string{"n": fmt.Sprint(random.IntN(5))})
	case 11:
		_ = s.do("Acknowledge")
	case 12:
		_ = s.do("Remove", uint64(random.IntN(2)))
	case 13:
		_ = s.do("Start")
	}
}
