package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/testbed"
)

// TestInvalidArguments_AreRefused checks that each error has the right name and describes the
// argument, and that none of the calls has created or changed anything.
func TestInvalidArguments_AreRefused(t *testing.T) {
	d := startDaemon(t)
	d.write("file", "no directory\n")
	require.NoError(t, os.Mkdir(d.dir+"/closed", 0o600))
	s := d.run(t, "witness", "exec sleep 1000")
	s.waitState("running")
	// The first session enables corrald.service in the background, and this file is its last step.
	testbed.WaitFile(t, d.dir+"/state/corral/login", nil)
	before := d.snapshot(t)
	for _, c := range d.invalidCalls() {
		t.Run(c.name, func(t *testing.T) { assertRefused(t, d.call(c.path, c.method, c.args), c.err, c.words...) })
	}
	assert.Equal(t, before, d.snapshot(t))
}

// invalidCall is a call and the expected error.
type invalidCall struct {
	name   string
	path   dbus.ObjectPath
	method string
	args   []any
	err    string
	words  []string
}

func (d *corrald) invalidCalls() []invalidCall {
	var calls []invalidCall
	manager := func(name, method, err string, words []string, args ...any) {
		calls = append(calls, invalidCall{name, dbusapi.ManagerPath,
			dbusapi.ManagerInterface + "." + method, args, err, words})
	}
	session := func(name, method, err string, words []string, args ...any) {
		calls = append(calls, invalidCall{name, dbusapi.SessionPath("witness"),
			dbusapi.SessionInterface + "." + method, args, err, words})
	}
	create := func(name, err string, words []string, change spec) {
		sp := spec{"Id": "refused", "Command": []string{"true"}, "WorkingDirectory": d.dir}
		for key, value := range change {
			sp[key] = value
		}
		manager(name, "CreateSession", err, words, "command", sp.variants())
	}
	for name, id := range map[string]string{
		"a path": "../../etc", "an absolute path": "/etc/passwd", "dots": "..", "one dot": ".", "a space": " ",
		"upper case": "Shop", "10,000 letters": strings.Repeat("a", 10000),
		"65 letters": strings.Repeat("a", 65), "a dash first": "-shop", "a dash last": "shop-", "a dot last": "shop.",
		"a slash": "a/b", "a newline": "a\nb",
		"not ASCII": "größe", "a glob": "*", "a suffix": "a.scope/..",
	} {
		create("id: "+name, dbusapi.InvalidArgs, []string{"Id"}, spec{"Id": id})
		manager("unknown id: "+name, "GetSession", dbusapi.NoSuchSession, []string{"no such session"}, id)
	}
	for key, value := range map[string]any{
		"Id": 7, "Description": true, "Command": "true", "WorkingDirectory": []string{"/"}, "Environment": "A=b",
		"Prompt": []string{"p"}, "Labels": []string{"a"},
		"Start": "yes", "OnLogin": false, "Exclusive": "yes", "Worktree": uint32(1), "ConversationId": int64(1),
		"ForkedFrom":     true,
		"UnitProperties": []string{"MemoryMax=1"},
	} {
		create("wrong type: "+key, dbusapi.InvalidArgs, []string{key}, spec{key: value})
	}
	create("unknown key", dbusapi.InvalidArgs, []string{"Colour"}, spec{"Colour": "red"})
	create("workspace missing", dbusapi.WorkspaceMissing, []string{"/no/such/place"},
		spec{"WorkingDirectory": "/no/such/place"})
	create("workspace relative", dbusapi.InvalidArgs, []string{"WorkingDirectory", `"src"`},
		spec{"WorkingDirectory": "src"})
	create("workspace is a file", dbusapi.WorkspaceMissing, []string{d.dir + "/file"},
		spec{"WorkingDirectory": d.dir + "/file"})
	create("workspace below a file", dbusapi.WorkspaceMissing, []string{d.dir + "/file/x"},
		spec{"WorkingDirectory": d.dir + "/file/x"})
	create("workspace that cannot be entered", dbusapi.WorkspaceMissing, []string{d.dir + "/closed", "permission denied"},
		spec{"WorkingDirectory": d.dir + "/closed"})
	create("environment without =", dbusapi.InvalidArgs, []string{"Environment", "TOKEN"},
		spec{"Environment": []string{"A=b", "TOKEN"}})
	create("environment without a name", dbusapi.InvalidArgs, []string{"Environment"}, spec{"Environment": []string{"=b"}})
	create("no program", dbusapi.InvalidArgs, []string{"Command"}, spec{"Command": []string{""}})
	create("no command", dbusapi.InvalidArgs, []string{"Command"}, spec{"Command": []string{}})
	create("a huge command", dbusapi.LimitsExceeded, []string{"Command"},
		spec{"Command": []string{"true", strings.Repeat("x", 2<<20)}})
	create("a huge description", dbusapi.LimitsExceeded, []string{"Description"},
		spec{"Description": strings.Repeat("x", 1<<20)})
	create("bad OnLogin", dbusapi.InvalidArgs, []string{"OnLogin", "maybe"}, spec{"OnLogin": "maybe"})
	create("a label without a name", dbusapi.InvalidArgs, []string{"label"}, spec{"Labels": map[string]string{"": "x"}})
	create("bad conversation", dbusapi.InvalidArgs, []string{"ConversationId"}, spec{"ConversationId": "../x"})
	create("a unit property of ours", dbusapi.InvalidArgs, []string{"UnitProperties", "KillMode"},
		spec{"UnitProperties": []property{{"KillMode", "none"}}})
	create("duplicate id", dbusapi.SessionExists, []string{"witness"}, spec{"Id": "witness"})
	manager("unknown agent", "CreateSession", dbusapi.NoSuchAgent, []string{"nobody"}, "nobody",
		spec{"WorkingDirectory": d.dir}.variants())
	manager("a path for an agent", "CreateSession", dbusapi.NoSuchAgent, []string{"../claude"}, "../claude",
		spec{"WorkingDirectory": d.dir}.variants())

	none := []string{"nobody"}
	for method, args := range map[string][]any{
		"GetSession": {}, "StartSession": {}, "RestartSession": {}, "StopSession": {uint64(0)},
		"KillSession": {"agent", int32(15)}, "ArchiveSession": {},
		"RemoveSession": {uint64(0)}, "SendInput": {"text", uint64(0)},
	} {
		manager("unknown session: "+method, method, dbusapi.NoSuchSession, none, append([]any{"nobody"}, args...)...)
	}
	manager("unknown unit", "GetSessionByUnit", dbusapi.NoSessionForUnit, []string{"ssh.service"}, "ssh.service")
	manager("unknown pid", "GetSessionByPID", dbusapi.NoSessionForPID, []string{"4194304"}, uint32(4194304))
	manager("a pid without a session", "GetSessionByPID", dbusapi.NoSessionForPID, nil, uint32(os.Getpid()))

	session("flags of Remove", "Remove", dbusapi.InvalidArgs, []string{"flags"}, uint64(8))
	session("flags of SendInput", "SendInput", dbusapi.InvalidArgs, []string{"flags"}, "text", uint64(128))
	session("flags of Capture", "Capture", dbusapi.InvalidArgs, []string{"flags"}, uint32(1), uint64(2))
	session("whom", "Kill", dbusapi.InvalidArgs, []string{"everybody"}, "everybody", int32(9))
	session("signal 0", "Kill", dbusapi.InvalidArgs, []string{"0"}, "agent", int32(0))
	session("signal 65", "Kill", dbusapi.InvalidArgs, []string{"65"}, "agent", int32(65))
	session("signal -1", "Kill", dbusapi.InvalidArgs, []string{"-1"}, "agent", int32(-1))
	session("timeout", "Stop", dbusapi.InvalidArgs, []string{"timeout"}, ^uint64(0))
	session("on_login", "SetOnLogin", dbusapi.InvalidArgs, []string{"maybe"}, "maybe")
	session("a huge text", "SendInput", dbusapi.LimitsExceeded, nil, strings.Repeat("x", 2<<20), uint64(0))
	session("too few arguments", "Stop", dbusapi.InvalidArgs, nil)
	session("too many arguments", "Start", dbusapi.InvalidArgs, nil, "now")
	session("wrong arguments", "Stop", dbusapi.InvalidArgs, nil, "now")
	session("unknown method", "Explode", dbusapi.UnknownMethod, []string{"Explode"})
	manager("unknown method", "Explode", dbusapi.UnknownMethod, []string{"Explode"})

	const properties = "org.freedesktop.DBus.Properties."
	more := func(name string, path dbus.ObjectPath, method, err string, words []string, args ...any) {
		calls = append(calls, invalidCall{name, path, method, args, err, words})
	}
	witness := dbusapi.SessionPath("witness")
	more("set a property", witness, properties+"Set", dbusapi.PropertyReadOnly, []string{"State"},
		dbusapi.SessionInterface, "State", dbus.MakeVariant("stopped"))
	more("set one of the Manager", dbusapi.ManagerPath, properties+"Set", dbusapi.PropertyReadOnly, []string{"Version"},
		dbusapi.ManagerInterface, "Version", dbus.MakeVariant("9"))
	more("set an unknown one", witness, properties+"Set", dbusapi.UnknownProperty, []string{"Colour"},
		dbusapi.SessionInterface, "Colour", dbus.MakeVariant("red"))
	more("get an unknown one", witness, properties+"Get", dbusapi.UnknownProperty, []string{"Colour"},
		dbusapi.SessionInterface, "Colour")
	more("get of an unknown interface", witness, properties+"Get", dbusapi.UnknownInterface,
		[]string{"org.example.Paint"}, "org.example.Paint", "Colour")
	more("get all of an unknown interface", witness, properties+"GetAll", dbusapi.UnknownInterface,
		[]string{"org.example.Paint"}, "org.example.Paint")
	more("get of the Manager's interface", witness, properties+"GetAll", dbusapi.UnknownInterface, []string{"Manager"},
		dbusapi.ManagerInterface)
	more("unknown interface", witness, "org.example.Paint.Brush", dbusapi.UnknownInterface, []string{"org.example.Paint"})
	more("unknown session's object", dbusapi.SessionPath("nobody"), dbusapi.SessionInterface+".Start",
		dbusapi.UnknownObject, []string{"nobody"})
	more("unknown object", "/org/example", "org.freedesktop.DBus.Properties.GetAll", dbusapi.UnknownObject,
		[]string{"/org/example"}, "x")
	more("a session's method on the Manager", dbusapi.ManagerPath, dbusapi.SessionInterface+".Start",
		dbusapi.UnknownInterface, nil)
	return calls
}

// snapshot returns files, scopes, sessions and their properties, without times and measurements.
func (d *corrald) snapshot(t *testing.T) map[string]any {
	t.Helper()
	all := map[string]any{"scopes": testbed.Systemctl(t, "list-units", "--all", "--plain", "--no-legend", "app-corral*")}
	var files []string
	for _, root := range []string{d.dir, filepath.Dir(d.runtimeDir("x"))} {
		require.NoError(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			files = append(files, path)
			return err
		}))
	}
	all["files"] = files
	for _, id := range d.ids(t) {
		p := d.session(t, id).properties()
		for _, name := range append(unannounced(), "Activity", "IdleHint", "IdleSinceHint") {
			delete(p, name)
		}
		all[id] = p
	}
	return all
}

// TestCreateSession_AcceptsExtensionKeys checks that keys with the prefix x-, which are reserved
// for other programs, are accepted.
func TestCreateSession_AcceptsExtensionKeys(t *testing.T) {
	d := startDaemon(t)
	s := d.create(t, "extended", spec{"Command": []string{"true"}, "Start": false, "x-desktop-colour": []string{"red"}})
	s.assertOutcome(outcome{"created", "", 0, 0, "", "active"})
}

// TestSessionID_IsDerivedFromTheWorkspace creates sessions without an id.
func TestSessionID_IsDerivedFromTheWorkspace(t *testing.T) {
	d := startDaemon(t)
	for _, c := range []struct{ dir, want string }{
		{"shop", "shop"}, {"a/shop", "shop-2"}, {"My Shop!", "my-shop"}, {"--", "session"},
		{strings.Repeat("x", 100), strings.Repeat("x", 64)},
		{"a/" + strings.Repeat("x", 100), strings.Repeat("x", 62) + "-2"}, {"größe", "gre"}, {".hidden.", "hidden"},
	} {
		work := filepath.Join(d.dir, c.dir)
		require.NoError(t, os.MkdirAll(work, 0o700))
		var id string
		var path dbus.ObjectPath
		require.NoError(t,
			d.manager("CreateSession", []any{"command",
				spec{"Command": []string{"true"}, "Start": false, "WorkingDirectory": work}.variants()}, &id, &path))
		assert.Equal(t, c.want, id)
	}
}

// TestNUL_IsRejectedByTheClientLibrary checks that a string with a NUL byte, which D-Bus does not
// allow, is never sent.
func TestNUL_IsRejectedByTheClientLibrary(t *testing.T) {
	d := startDaemon(t)
	var answer dbus.Error
	_, err := d.tryCreate(t, "nul\x00", spec{"Command": []string{"true"}})
	require.Error(t, err)
	require.NotErrorAs(t, err, &answer, "the message was sent")
	_, err = d.tryCreate(t, "nul", spec{"Command": []string{"true", "a\x00b"}})
	require.Error(t, err)
	assert.Empty(t, d.ids(t))
}
