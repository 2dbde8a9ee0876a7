package tmux

import (
	"context"
	"fmt"
	"strings"

	"github.com/corrald/corral/internal/atomicfile"
	"github.com/corrald/corral/internal/keys"
)

// The server options that contain the key that detaches a terminal, and its label for users.
const (
	detachOption = "@corral-detach"
	keyOption    = "@corral-detach-key"
)

// SetDetachKey sets the key, by tmux's name, that detaches a terminal from sessions whose servers
// are started from now on; "" for none.
func (t *Tmux) SetDetachKey(key string) error {
	text := configuration + "set-environment -g DBUS_SESSION_BUS_ADDRESS " + quoteArgument(t.BusAddr) + "\n"
	for _, command := range detachCommands(key) {
		for i, arg := range command {
			command[i] = quoteArgument(arg)
		}
		text += strings.Join(command, " ") + "\n"
	}
	if err := atomicfile.Write(t.Config, []byte(text), 0o600); err != nil {
		return fmt.Errorf("cannot write tmux's configuration: %w", err)
	}
	return nil
}

// ChangeDetachKey changes the key that detaches a terminal from a running session; "" for none.
func (t *Tmux) ChangeDetachKey(ctx context.Context, s Session, key string) error {
	out, err := t.command(ctx, s, "-N", "display-message", "-p", "#{"+keyOption+"}")
	old := strings.TrimSuffix(string(out), "\n")
	if err != nil || old == key {
		return err
	}
	args := []string{"-N"}
	if old != "" {
		args = append(args, "unbind-key", "-n", escapeArgument(old), ";", "unbind-key", escapeArgument(old), ";")
	}
	args = append(args, "set-option", "-su", keyOption, ";", "set-option", "-su", detachOption)
	for _, command := range detachCommands(key) {
		args = append(args, ";")
		for _, arg := range command {
			args = append(args, escapeArgument(arg))
		}
	}
	if _, err := t.command(ctx, s, args...); err != nil {
		return fmt.Errorf("cannot change the key that detaches from %q: %w", s.Name, err)
	}
	return nil
}

// detachCommands returns the tmux commands that make a key detach a terminal. Typed after the
// prefix key, the key is sent to the program.
func detachCommands(key string) [][]string {
	if key == "" {
		return nil
	}
	return [][]string{
		{"bind-key", "-n", key, "detach-client"},
		{"bind-key", key, "send-keys", key},
		{"set-option", "-s", keyOption, key},
		{"set-option", "-s", detachOption, keys.Label(key)},
	}
}

// quoteArgument quotes an argument for a tmux configuration file.
func quoteArgument(arg string) string {
	if strings.Contains(arg, "'") {
		return `"` + arg + `"`
	}
	return "'" + arg + "'"
}
