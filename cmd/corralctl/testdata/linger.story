# Whether sessions keep running after logout is the login manager's decision; showing it needs no
# daemon.

$ corralctl linger
Lingering is …

$ corralctl linger --json
{"Lingering":…}

$ corralctl linger perhaps
corralctl: invalid argument "perhaps": expected on or off
hint: corralctl help linger
[exit 2]

$ DBUS_SYSTEM_BUS_ADDRESS=unix:path=/nonexistent corralctl linger on
corralctl: cannot turn lingering on: …/nonexistent…
hint: sudo loginctl enable-linger …
[exit 1]
