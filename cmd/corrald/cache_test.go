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

// unannounced returns the names of the properties of a session whose changes are not announced.
func unannounced() (names []string) {
	for _, p := range dbusapi.SessionProperties {
		if p.Announced == dbusapi.NotAnnounced {
			names = append(names, p.Name)
		}
	}
	return names
}

// cache is the state of a client that keeps the properties of each object and follows the signals,
// as every caching proxy does.
type cache map[dbus.ObjectPath]properties

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
			c[s.Path] = properties{}
		}
		values, _ := s.Body[1].(map[string]dbus.Variant)
		maps.Copy(c[s.Path], values)
		invalid, _ := s.Body[2].([]string)
		for _, name := range invalid {
			delete(c[s.Path], name)
		}
	}
}

// differences returns the cached values that differ from the daemon's. A property that is not
// cached has to be read from the daemon, and so is always current.
func (c cache) differences(path dbus.ObjectPath, now properties) (all []string) {
	for name, value := range c[path] {
		if is, there := now[name]; !slices.Contains(unannounced(), name) &&
			(!there || !reflect.DeepEqual(is.Value(), value.Value())) {
			all = append(all, fmt.Sprintf("%s %s: %v, and it is %v", path, name, value, is))
		}
	}
	return all
}

// TestPropertiesChanged_KeepsClientCachesCurrent checks that no change goes without a signal,
// whatever several clients do with some sessions at the same time.
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
				s := &testSession{d, t, ids[random.IntN(len(ids))]}
				s.callAtRandom(random)
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
	testbed.Poll(t, "the caches are current", func() bool {
		c := cache{}
		signals, _ := d.signals.since(0)
		for _, s := range signals {
			c.follow(s)
		}
		wrong = nil
		for path := range c {
			iface := dbusapi.SessionInterface
			if path == dbusapi.ManagerPath {
				iface = dbusapi.ManagerInterface
			}
			var now properties
			if err := d.call(path, "org.freedesktop.DBus.Properties.GetAll", []any{iface}, &now); err != nil {
				wrong = append(wrong, err.Error())
			}
			wrong = append(wrong, c.differences(path, now)...)
		}
		return len(wrong) == 0
	})
}

// callAtRandom makes a random call. An error reply is as good as success.
func (s *testSession) callAtRandom(random *rand.Rand) {
	switch random.IntN(14) {
	case 0, 1, 2:
		_, _ = s.tryCreate(s.t, s.id,
			spec{"Command": []string{"sh", "-c", `printf "\a"; (sleep 1; exit 3) & sleep 0.` + fmt.Sprint(random.IntN(10)) +
				`; exit 3`}})
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
