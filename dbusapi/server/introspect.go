package server

import (
	"context"
	"encoding/xml"
	"regexp"
	"strings"

	"github.com/godbus/dbus/v5"
	"github.com/godbus/dbus/v5/introspect"

	"github.com/corrald/corral/dbusapi"
)

const (
	peerInterface           = "org.freedesktop.DBus.Peer"
	propertiesInterface     = "org.freedesktop.DBus.Properties"
	introspectableInterface = "org.freedesktop.DBus.Introspectable"
	objectManagerInterface  = "org.freedesktop.DBus.ObjectManager"
)

const standardXML = `
  <interface name="org.freedesktop.DBus.Peer">
    <method name="Ping"/>
    <method name="GetMachineId"><arg name="machine_uuid" type="s" direction="out"/></method>
  </interface>
  <interface name="org.freedesktop.DBus.Introspectable">
    <method name="Introspect"><arg name="xml_data" type="s" direction="out"/></method>
  </interface>`

const propertiesXML = `
  <interface name="org.freedesktop.DBus.Properties">
    <method name="Get"><arg name="interface_name" type="s" direction="in"/><arg name="property_name" type="s" direction="in"/><arg name="value" type="v" direction="out"/></method>
    <method name="GetAll"><arg name="interface_name" type="s" direction="in"/><arg name="properties" type="a{sv}" direction="out"/></method>
    <method name="Set"><arg name="interface_name" type="s" direction="in"/><arg name="property_name" type="s" direction="in"/><arg name="value" type="v" direction="in"/></method>
    <signal name="PropertiesChanged"><arg name="interface_name" type="s"/><arg name="changed_properties" type="a{sv}"/><arg name="invalidated_properties" type="as"/></signal>
  </interface>`

const objectManagerXML = `
  <interface name="org.freedesktop.DBus.ObjectManager">
    <method name="GetManagedObjects"><arg name="objects" type="a{oa{sa{sv}}}" direction="out"/></method>
    <signal name="InterfacesAdded"><arg name="object" type="o"/><arg name="interfaces" type="a{sa{sv}}"/></signal>
    <signal name="InterfacesRemoved"><arg name="object" type="o"/><arg name="interfaces" type="as"/></signal>
  </interface>`

const doctype = `<!DOCTYPE node PUBLIC "-//freedesktop//DTD D-BUS Object Introspection 1.0//EN"
  "http://www.freedesktop.org/standards/dbus/1.0/introspect.dtd">
`

// The contract's interfaces as they are served: the definitions without their comments.
var (
	managerXML = definition(dbusapi.ManagerXML)
	sessionXML = definition(dbusapi.SessionXML)
)

var comment = regexp.MustCompile(`(?s)<!--.*?-->\s*`)

// definition returns the <interface> element of a definition file, without comments.
func definition(file string) string {
	file = comment.ReplaceAllString(file, "")
	begin, end := strings.Index(file, "<interface"), strings.LastIndex(file, "</interface>")
	return "\n  " + file[begin:end] + "</interface>"
}

// childNames contains the child nodes of each path that exists only as a parent of other objects.
var childNames = map[dbus.ObjectPath][]string{
	"/":                  {"io", "org"},
	"/io":                {"github"},
	"/io/github":         {"corrald"},
	"/io/github/corrald": {"Corral1"},
	"/org":               {"freedesktop"},
	"/org/freedesktop":   {"LogControl1"},
}

func introspectObject(_ context.Context, o *object, _ *dbus.Message) ([]any, error) {
	var b strings.Builder
	b.WriteString(doctype + "<node>" + standardXML)
	switch {
	case o.session != "":
		if _, err := o.snapshot(); err != nil {
			return nil, err
		}
		b.WriteString(propertiesXML + sessionXML)
	case o.path == dbusapi.ManagerPath:
		b.WriteString(propertiesXML + objectManagerXML + managerXML + "\n  <node name=\"session\"/>")
	case o.path == dbusapi.SessionsPath:
		for _, n := range o.server.snapshots() {
			name := strings.TrimPrefix(string(dbusapi.SessionPath(n.ID)), string(dbusapi.SessionsPath)+"/")
			b.WriteString("\n  <node name=\"" + name + "\"/>")
		}
	case o.path == logControlPath:
		b.WriteString(propertiesXML + logControlXML)
	default:
		for _, name := range childNames[o.path] {
			b.WriteString("\n  <node name=\"" + name + "\"/>")
		}
	}
	b.WriteString("\n</node>\n")
	return []any{b.String()}, nil
}

// handler answers the calls of a method. It returns the body of the reply.
type handler = func(context.Context, *object, *dbus.Message) ([]any, error)

// build returns the interfaces of an object: each method in the definitions with its handler. A
// method without a handler returns NotSupported.
func build(handlers map[string]map[string]handler, definitions ...string) map[string]methods {
	interfaces := map[string]methods{}
	var node introspect.Node
	if err := xml.Unmarshal([]byte("<node>"+strings.Join(definitions, "")+"</node>"), &node); err != nil {
		panic("a definition in the program is not XML: " + err.Error())
	}
	for _, i := range node.Interfaces {
		interfaces[i.Name] = methods{}
		for _, m := range i.Methods {
			var in string
			for _, a := range m.Args {
				if a.Direction != "out" {
					in += a.Type
				}
			}
			call := handlers[i.Name][m.Name]
			if call == nil {
				call = notSupported
			}
			interfaces[i.Name][m.Name] = &method{dbus.ParseSignatureMust(in), call}
		}
	}
	return interfaces
}

func notSupported(_ context.Context, _ *object, msg *dbus.Message) ([]any, error) {
	return nil, newError(dbusapi.NotSupported, "this version cannot do "+member(msg))
}

var standardHandlers = map[string]map[string]handler{
	introspectableInterface:  {"Introspect": introspectObject},
	propertiesInterface:      {"Get": getProperty, "GetAll": getAllProperties, "Set": setProperty},
	objectManagerInterface:   {"GetManagedObjects": getManagedObjects},
	dbusapi.ManagerInterface: managerHandlers,
	dbusapi.SessionInterface: sessionHandlers,
}

var managerInterfaces, sessionInterfaces, logControlInterfaces, folderInterfaces map[string]methods

func init() { //nolint:gochecknoinits // the tables refer to functions that refer to them
	managerInterfaces = build(standardHandlers, standardXML, propertiesXML, objectManagerXML, managerXML)
	sessionInterfaces = build(standardHandlers, standardXML, propertiesXML, sessionXML)
	logControlInterfaces = build(standardHandlers, standardXML, propertiesXML, logControlXML)
	folderInterfaces = build(standardHandlers, standardXML)
}
