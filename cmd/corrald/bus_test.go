package main

import (
	"encoding/xml"
	"fmt"
	"os"
	"os/exec"
	"path"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/godbus/dbus/v5/introspect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
)

// TestContract_IsServedCompletely checks that introspection returns the whole contract, and that
// Get and GetAll return each property with its type.
func TestContract_IsServedCompletely(t *testing.T) {
	d := startDaemon(t)
	s := d.run(t, "fix-auth", "exec sleep 1000")
	s.waitState("running")
	for _, c := range []struct {
		path       dbus.ObjectPath
		definition string
	}{{dbusapi.ManagerPath, dbusapi.ManagerXML}, {"/io/github/corrald/Corral1/session/fix_2dauth", dbusapi.SessionXML}} {
		var contract introspect.Node
		require.NoError(t, xml.Unmarshal([]byte(c.definition), &contract))
		want := contract.Interfaces[0]
		served, err := d.introspect(c.path)
		require.NoError(t, err)
		got := interfaceOf(served, want.Name)
		require.NotNil(t, got, "%s", want.Name)
		assert.Equal(t, want.Methods, got.Methods)
		assert.Equal(t, want.Signals, got.Signals)
		assert.Equal(t, want.Properties, got.Properties)
		for _, standard := range []string{"Properties", "Introspectable", "Peer"} {
			assert.NotNil(t, interfaceOf(served, "org.freedesktop.DBus."+standard), "%s has %s", c.path, standard)
		}

		// Read from the message itself: storing a variant creates a new one from its value, with a type
		// of its own.
		reply := d.bus.Object(dbusapi.BusName, c.path).Call("org.freedesktop.DBus.Properties.GetAll", 0, want.Name)
		require.NoError(t, reply.Err)
		all, _ := reply.Body[0].(map[string]dbus.Variant)
		assert.Len(t, all, len(want.Properties))
		for _, property := range want.Properties {
			assert.Equal(t, property.Type, all[property.Name].Signature().String(), "type of %s", property.Name)
			reply := d.bus.Object(dbusapi.BusName, c.path).
				Call("org.freedesktop.DBus.Properties.Get", 0, want.Name, property.Name)
			require.NoError(t, reply.Err, property.Name)
			one, _ := reply.Body[0].(dbus.Variant)
			assert.Equal(t, property.Type, one.Signature().String(), "type of %s", property.Name)
		}
		assertMethodsAnswer(t, d, c.path, want)
	}
	served, err := d.introspect(dbusapi.ManagerPath)
	require.NoError(t, err)
	assert.NotNil(t, interfaceOf(served, "org.freedesktop.DBus.ObjectManager"))
}

// assertMethodsAnswer calls each method with arguments that no method has: the method has to exist,
// and its error has to name the signature.
func assertMethodsAnswer(t *testing.T, d *corrald, path dbus.ObjectPath, i introspect.Interface) {
	t.Helper()
	for _, m := range i.Methods {
		assertRefused(t, d.call(path, i.Name+"."+m.Name, []any{1.5, 1.5, 1.5, 1.5}), dbusapi.InvalidArgs, `"dddd"`)
	}
}

func interfaceOf(node introspect.Node, name string) *introspect.Interface {
	for i := range node.Interfaces {
		if node.Interfaces[i].Name == name {
			return &node.Interfaces[i]
		}
	}
	return nil
}

// TestLookup_FindsSessionsByIDUnitAndPID finds sessions by id, unit and process, in lists and among
// the managed objects, and checks that all of them agree.
func TestLookup_FindsSessionsByIDUnitAndPID(t *testing.T) {
	d := startDaemon(t)
	s := d.run(t, "found", "exec sleep 1000")
	p := s.waitState("running")
	ended := d.run(t, "ended", "exit 0")
	ended.waitState("completed")
	pid := uint32(p.number("MainPID"))
	for method, argument := range map[string]any{
		"GetSession": "found", "GetSessionByUnit": s.unit(), "GetSessionByPID": pid,
	} {
		var path dbus.ObjectPath
		require.NoError(t, d.manager(method, []any{argument}, &path), method)
		assert.Equal(t, dbusapi.SessionPath("found"), path, method)
	}
	var rows []dbusapi.SessionRow
	require.NoError(t, d.manager("ListSessions", nil, &rows))
	require.Len(t, rows, 2)
	assert.Equal(t, dbusapi.SessionRow{ID: "found", Agent: "command", State: "running", Activity: rows[0].Activity,
		StateChange: p["StateChangeTimestamp"].Value().(uint64), Path: dbusapi.SessionPath("found")}, rows[0])

	var objects map[dbus.ObjectPath]map[string]map[string]dbus.Variant
	require.NoError(t, d.call(dbusapi.ManagerPath, "org.freedesktop.DBus.ObjectManager.GetManagedObjects", nil, &objects))
	require.Len(t, objects, 2)
	managed := objects[dbusapi.SessionPath("ended")][dbusapi.SessionInterface]
	for name, value := range ended.properties() {
		if _, listed := managed[name]; listed {
			assert.Equal(t, value, managed[name], name)
		}
	}
	assert.Equal(t, p.text("ControlGroup"), "/"+strings.TrimPrefix(p.text("ControlGroup"), "/"))
	assert.Contains(t, p.text("ControlGroup"), "/app-corral.slice/"+s.unit())
	unit := d.bus.Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1")
	var unitPath dbus.ObjectPath
	require.NoError(t, unit.Call("org.freedesktop.systemd1.Manager.GetUnitByPID", 0, pid).Store(&unitPath))
	assert.Contains(t, string(unitPath), "app_2dcorral_2dcommand_2dfound_2escope", "systemd finds the same unit")
}

// TestGetSessionByPID_FindsTheCallersSession checks that an agent finds its own session without any
// information about it.
func TestGetSessionByPID_FindsTheCallersSession(t *testing.T) {
	d := startDaemon(t)
	s := d.run(t, "selfish", fmt.Sprintf(
		"busctl --user call %s %s %s.Manager GetSessionByPID u 0 >%s/who.new 2>&1; mv %s/who.new %s/who; exec sleep 1000",
		dbusapi.BusName, dbusapi.ManagerPath,
		dbusapi.BusName, d.dir, d.dir, d.dir))
	assert.Equal(t, fmt.Sprintf("o %q\n", dbusapi.SessionPath("selfish")), s.awaitFile("who"))
	assertRefused(t, d.manager("GetSessionByPID", []any{uint32(0)}), dbusapi.NoSessionForPID)
}

// TestSignals_AnnounceNewAndRemovedSessions checks the order: first the standard signal for the
// object, then that of the Manager for the session.
func TestSignals_AnnounceNewAndRemovedSessions(t *testing.T) {
	d := startDaemon(t)
	mark := d.signals.mark()
	s := d.create(t, "brief", spec{"Command": []string{"true"}, "Start": false})
	s.must("Remove", uint64(0))
	d.await(t, mark, "SessionRemoved", func(s *dbus.Signal) bool {
		return s.Name == dbusapi.ManagerInterface+".SessionRemoved"
	})
	var names []string
	for _, signal := range d.signals.after(mark) {
		if signal.Name != propertiesChanged {
			assert.Equal(t, dbusapi.ManagerPath, signal.Path)
			names = append(names, signal.Name[strings.LastIndexByte(signal.Name, '.')+1:])
		}
	}
	assert.Equal(t, []string{"InterfacesAdded", "SessionNew", "InterfacesRemoved", "SessionRemoved"}, names)
}

// TestBusctl_ShowsAndMonitorsSessions checks a usual tool for inspecting a bus.
func TestBusctl_ShowsAndMonitorsSessions(t *testing.T) {
	d := startDaemon(t)
	s := d.run(t, "fix-auth", "exec sleep 1000")
	s.waitState("running")
	object := string(dbusapi.SessionPath("fix-auth"))
	busctl := func(args ...string) string { return runCommand(t, "busctl", append([]string{"--user"}, args...)...) }

	tree := busctl("tree", "--list", dbusapi.BusName)
	assert.Contains(t, strings.Split(tree, "\n"), object)
	text := busctl("introspect", dbusapi.BusName, object)
	for _, line := range []string{
		".SendInput", ".State", `"running"`, "method", "property", "emits-change", "org.freedesktop.DBus.Properties",
	} {
		assert.Contains(t, text, line)
	}
	assert.Contains(t, busctl("introspect", dbusapi.BusName, string(dbusapi.ManagerPath)), "SessionStateChanged")
	assert.Equal(t, "s \"running\"\n", busctl("get-property", dbusapi.BusName, object, dbusapi.SessionInterface, "State"))
	assert.Contains(t, busctl("call", dbusapi.BusName, string(dbusapi.ManagerPath), dbusapi.ManagerInterface,
		"ListSessions"), `"fix-auth" "command" "running"`)
	assert.Contains(t, busctl("--json=short", "call", dbusapi.BusName, string(dbusapi.ManagerPath),
		"org.freedesktop.DBus.ObjectManager", "GetManagedObjects"), object)
	d.assertMonitored(t, s)
}

// assertMonitored follows one change of a session through busctl monitor.
func (d *corrald) assertMonitored(t *testing.T, s *testSession) {
	t.Helper()
	monitor := exec.CommandContext(t.Context(), "busctl", "--user", "--json=short", "monitor", dbusapi.BusName)
	log := d.dir + "/monitor"
	file, err := os.Create(log)
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	monitor.Stdout, monitor.Stderr = file, file
	require.NoError(t, monitor.Start())
	defer func() { _ = monitor.Process.Kill(); _ = monitor.Wait() }()
	waitFile(t, log, "Monitoring bus message stream")
	s.must("Stop", uint64(0))
	waitFile(t, log, `"member":"SessionStateChanged"`)
}

// tree returns the paths of all objects at and below a path. An object that disappears during the
// walk is left out, or is returned without children.
func (d *corrald) tree(t *testing.T, at dbus.ObjectPath) []dbus.ObjectPath {
	t.Helper()
	paths := []dbus.ObjectPath{at}
	node, err := d.introspect(at)
	if err != nil {
		return paths
	}
	for _, child := range node.Children {
		below := dbus.ObjectPath(path.Join(string(at), child.Name))
		assert.True(t, below.IsValid(), "%s", below)
		paths = append(paths, d.tree(t, below)...)
	}
	return paths
}

func (d *corrald) introspect(at dbus.ObjectPath) (introspect.Node, error) {
	var node introspect.Node
	var text string
	err := d.call(at, "org.freedesktop.DBus.Introspectable.Introspect", nil, &text)
	if err == nil {
		err = xml.Unmarshal([]byte(text), &node)
	}
	return node, err
}
