package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/supervisor/store"
)

// hostileFaults are what an attacker or a broken program may do: forged signals, files of the wrong
// type, forged records, no inotify watches left. None of it may change what is reported of any
// session. Each returns how many faults it injected.
var hostileFaults = map[string]func(*torture) int{
	"forged signal":                (*torture).forgeSignals,
	"file of a session replaced":   (*torture).replaceFiles,
	"forged or broken exit_status": (*torture).forgeExits,
	"no inotify watches left":      (*torture).exhaustWatches,
	"SIGSTOP of a shim or of tmux": (*torture).stopHelpers,
}

// choose returns at most n random victims of the round for which is returns true.
func (w *torture) choose(n int, is func(*victim) bool) []*victim {
	var chosen []*victim
	for _, at := range w.random.Perm(len(w.victims)) {
		if v := w.victims[at]; len(chosen) < n && is(v) {
			chosen = append(chosen, v)
		}
	}
	return chosen
}

func (w *torture) anyVictim(*victim) bool { return true }

// forgeSignals sends signals that only systemd, the bus and the notification server may send, to
// the daemon's unique name. Match rules filter broadcasts only: each of these signals arrives.
func (w *torture) forgeSignals() (sent int) {
	conn, err := dbus.Connect(os.Getenv("DBUS_SESSION_BUS_ADDRESS"))
	if err != nil {
		return 0
	}
	defer func() { _ = conn.Close() }()
	var owner string
	if conn.BusObject().Call("org.freedesktop.DBus.GetNameOwner", 0, dbusapi.BusName).Store(&owner) != nil {
		return 0
	}
	send := func(path dbus.ObjectPath, name string, body ...any) {
		dot := strings.LastIndexByte(name, '.')
		msg := &dbus.Message{
			Type: dbus.TypeSignal, Body: body,
			Headers: map[dbus.HeaderField]dbus.Variant{
				dbus.FieldDestination: dbus.MakeVariant(owner),
				dbus.FieldPath:        dbus.MakeVariant(path),
				dbus.FieldInterface:   dbus.MakeVariant(name[:dot]),
				dbus.FieldMember:      dbus.MakeVariant(name[dot+1:]),
			},
		}
		if len(body) > 0 {
			msg.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(body...))
		}
		conn.Send(msg, nil)
		sent++
	}
	const systemd, manager = "org.freedesktop.systemd1.", dbus.ObjectPath("/org/freedesktop/systemd1")
	for _, v := range w.choose(4, w.anyVictim) {
		unit := "app-corral-command-" + v.id + ".scope"
		path := manager + "/unit/" + escaped(unit)
		changed := func(iface string, properties map[string]dbus.Variant) {
			send(path, "org.freedesktop.DBus.Properties.PropertiesChanged", systemd+iface, properties, []string{})
		}
		send(path, systemd+"Scope.RequestStop")
		changed("Unit", map[string]dbus.Variant{"ActiveState": dbus.MakeVariant("deactivating")})
		changed("Scope",
			map[string]dbus.Variant{"Result": dbus.MakeVariant([]string{"timeout", "oom-kill"}[w.random.IntN(2)])})
		changed("Unit", map[string]dbus.Variant{"ActiveState": dbus.MakeVariant("inactive")})
		send(manager, systemd+"Manager.JobRemoved", uint32(1), manager+"/job/1", unit, "failed")
		send(manager, systemd+"Manager.UnitRemoved", unit, path)
	}
	send(manager, systemd+"Manager.Reloading", false)
	send("/org/freedesktop/DBus", "org.freedesktop.DBus.NameOwnerChanged", "org.freedesktop.systemd1", "", conn.Names()[0])
	for n := range uint32(8) {
		send("/org/freedesktop/Notifications", "org.freedesktop.Notifications.ActionInvoked", n, "stop")
	}
	return sent
}

// escaped returns a unit's name as an element of an object path.
func escaped(name string) dbus.ObjectPath {
	var b strings.Builder
	for _, c := range []byte(name) {
		if c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "_%02x", c)
		}
	}
	return dbus.ObjectPath(b.String())
}

// replaceFiles replaces files of sessions by irregular ones while the daemon and clients read them.
// It spares session.json and exit_status, the only copies of what they record.
func (w *torture) replaceFiles() (replaced int) {
	for _, v := range w.choose(4, func(v *victim) bool { return v.hasStarted(w) }) {
		for _, name := range []string{"output.log", "output.log.1", "output.sizes", "output.times",
			"session.json.prev", "environment"} {
			path := filepath.Join(w.stateDir(v), name)
			_ = os.Remove(path)
			if w.createIrregular(path) == nil {
				replaced++
			}
		}
		go func() { // in a goroutine, because the call may hang
			var fd dbus.UnixFD
			if w.call(dbusapi.SessionPath(v.id), dbusapi.SessionInterface+".OpenLog", nil, &fd) == nil {
				_ = syscall.Close(int(fd))
			}
		}()
	}
	return replaced
}

// createIrregular creates a random kind of irregular or oversized file at path.
func (w *torture) createIrregular(path string) error {
	switch w.random.IntN(6) {
	case 0, 1:
		return syscall.Mkfifo(path, 0o600)
	case 2:
		return os.Mkdir(path, 0o700)
	case 3:
		return os.Symlink("/dev/zero", path)
	case 4:
		return os.Symlink(path+".nowhere", path)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return f.Truncate(1 << 30)
}

// forgeExits writes exit records that no shim has written beside running agents: valid ones of the
// current run, and truncated ones.
func (w *torture) forgeExits() (forged int) {
	for _, v := range w.choose(2, func(v *victim) bool { return v.role == lives && v.hasStarted(w) }) {
		p, _ := w.properties(v.id)
		for range 4 {
			text := exitstatus.Status{
				RunID: w.runOf(v), PID: p.number("MainPID"), Code: exitstatus.Exited, Value: w.random.IntN(3),
				Started: time.Now().Add(-time.Hour), Exited: time.Now().Add(time.Duration(w.random.IntN(48)-24) * time.Hour),
			}.Append(nil)
			if w.random.IntN(2) == 0 {
				text = text[:w.random.IntN(len(text))]
			}
			dirs := []string{w.stateDir(v), w.runtime(v)}
			path := filepath.Join(dirs[w.random.IntN(len(dirs))], exitstatus.FileName)
			if os.WriteFile(path+".forged", text, 0o600) == nil && os.Rename(path+".forged", path) == nil {
				forged++
			}
		}
	}
	return forged
}

// runOf returns the id of a session's run, "" if it has none.
func (w *torture) runOf(v *victim) string {
	all, _ := store.Read(w.dir + "/state/corral")
	for _, rec := range all {
		if rec.ID == v.id && rec.Run != nil {
			return rec.Run.ID
		}
	}
	return ""
}

// stopHelpers stops shims and tmux servers by SIGSTOP and never continues them: the daemon has to
// do so when it needs them. Agents that print more than a terminal buffers are left out: they would
// block, as with any stopped terminal.
func (w *torture) stopHelpers() (stopped int) {
	for _, v := range w.choose(3, func(v *victim) bool {
		return v.hasStarted(w) && v.role != isResumed && v.role != shouts
	}) {
		var pids []int
		which := w.random.IntN(3)
		if which != 0 {
			pids = append(pids, matching(w.isTmux(v))...)
		}
		if which != 1 {
			pids = append(pids, matching(w.isShim(v))...)
		}
		for _, pid := range pids {
			if syscall.Kill(pid, syscall.SIGSTOP) == nil {
				stopped++
			}
		}
	}
	return stopped
}

// Limits of exhaustWatches.
const (
	// The number of inotify instances that it creates. A user has 128, of which systemd and the
	// daemon need some.
	watchingInstances = 96
	// It does nothing if the user has more watches than this, which would take too much memory in the
	// kernel.
	mostWatches = 400_000
)

// exhaustWatches takes all inotify watches of the user, and so of systemd and the daemon, for a
// while.
func (w *torture) exhaustWatches() int {
	text, _ := os.ReadFile("/proc/sys/fs/inotify/max_user_watches")
	limit, err := strconv.Atoi(strings.TrimSpace(string(text)))
	dir := filepath.Join(w.dir, "watched")
	if err != nil || limit > mostWatches || os.MkdirAll(dir, 0o700) != nil {
		return 0
	}
	defer func() { _ = os.RemoveAll(dir) }()
	files := make([]string, limit/watchingInstances+1)
	for n := range files {
		files[n] = filepath.Join(dir, strconv.Itoa(n))
		if os.WriteFile(files[n], nil, 0o600) != nil {
			return 0
		}
	}
	for range watchingInstances {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
		if err != nil {
			break
		}
		defer func() { _ = unix.Close(fd) }()
		for _, file := range files {
			if _, err = unix.InotifyAddWatch(fd, file, unix.IN_DELETE_SELF); err != nil {
				break
			}
		}
		if err == unix.ENOSPC {
			break
		}
	}
	w.pause(200*time.Millisecond, time.Second)
	return 1
}

// stopEverything stops the sessions' scopes together with the daemon or the bus: each agent must
// still get SIGTERM.
func (w *torture) stopEverything() {
	commands := [][]string{
		{"stop", "app-corral.slice", "corrald.service"},
		{"stop", "app.slice"},
		{"stop", "dbus.service", "app-corral.slice"},
	}
	args := commands[w.random.IntN(len(commands))]
	w.countFault("systemctl "+strings.Join(args, " "), 1)
	w.allStopped = true
	w.systemctl(args...)
}

// standstill stops the daemon (SIGSTOP) for a long time, without a watchdog, while all agents of a
// round start and end.
func (w *torture) standstill(long time.Duration) {
	override := filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "systemd/user/corrald.service.d/standstill.conf")
	_ = os.MkdirAll(filepath.Dir(override), 0o755)
	_ = os.WriteFile(override, []byte("[Service]\nWatchdogSec=0\n"), 0o644)
	w.systemctl("daemon-reload")
	w.systemctl("restart", "corrald.service")
	const name = "still"
	// The call that resumes a session would time out before the daemon answers.
	victims := slices.DeleteFunc(cast(name, w.random), func(v *victim) bool { return v.role == isResumed })
	w.play(name, victims, func() {
		w.countFault(fmt.Sprintf("SIGSTOP of corrald for %v", long), 1)
		if pid := w.mainPID("corrald.service"); pid > 0 {
			_ = syscall.Kill(pid, syscall.SIGSTOP)
			<-time.After(long)
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	})
	_ = os.RemoveAll(filepath.Dir(override))
	w.systemctl("daemon-reload")
	w.systemctl("restart", "corrald.service")
}

func (w *torture) stateDir(v *victim) string {
	return filepath.Join(w.dir, "state/corral/sessions", v.id)
}
