"""follow.py NAME PATH INTERFACE ROOT: caches a session's properties and all objects with Gio, as a
desktop program does. It prints "ready" once the caches are filled. When the session's Description
becomes "the end", it compares the caches with the daemon's values, and prints "same" or the
differences."""

import sys
import gi

gi.require_version("Gio", "2.0")
from gi.repository import Gio, GLib

name, path, interface, root = sys.argv[1:]
EMITS = "org.freedesktop.DBus.Property.EmitsChangedSignal"
bus = Gio.bus_get_sync(Gio.BusType.SESSION)


def ask(at, of, method, *args):
    return bus.call_sync(name, at, of, method, args[0] if args else None, None, 0, 30000).unpack()


def announced():
    """Returns the names of the properties that can be cached."""
    node = Gio.DBusNodeInfo.new_for_xml(ask(path, "org.freedesktop.DBus.Introspectable", "Introspect")[0])
    properties = node.lookup_interface(interface).properties
    return [p.name for p in properties if Gio.DBusAnnotationInfo.lookup(p.annotations, EMITS) != "false"]


proxy = Gio.DBusProxy.new_sync(bus, Gio.DBusProxyFlags.GET_INVALIDATED_PROPERTIES, None, name, path, interface)
objects = Gio.DBusObjectManagerClient.new_sync(bus, 0, name, root, None, None, None)
loop = GLib.MainLoop()


def differences():
    now = ask(path, "org.freedesktop.DBus.Properties", "GetAll", GLib.Variant("(s)", (interface,)))[0]
    for p in announced():
        kept = proxy.get_cached_property(p)
        if kept is None or kept.unpack() != now[p]:
            yield f"{p} is {now[p]!r} and kept as {kept}"
    there = sorted(row[6] for row in ask(root, name + ".Manager", "ListSessions")[0])
    kept = sorted(o.get_object_path() for o in objects.get_objects())
    if there != kept:
        yield f"there are {there} and kept {kept}"


def finish():
    print("; ".join(differences()) or "same", flush=True)
    loop.quit()


def changed(proxy, properties, invalidated):
    for p, value in properties.unpack().items():
        if p == "State":
            print("state", value, flush=True)
        if p == "Description" and value == "the end":
            GLib.timeout_add(0, finish)


proxy.connect("g-properties-changed", changed)
print("ready", flush=True)
loop.run()
