package client

import (
	"context"
	"errors"
	"os"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/dbusapi"
)

// Session contains the properties of one session.
type Session = dbusapi.Session

// SessionProperties returns all properties of the session, by name.
func (c *Client) SessionProperties(ctx context.Context, id string) (Properties, error) {
	var p Properties
	err := c.ofSession(ctx, id, getAll, callTimeout, []any{dbusapi.SessionInterface}, &p)
	return p, err
}

// Session returns the properties of the session.
func (c *Client) Session(ctx context.Context, id string) (Session, error) {
	s := dbusapi.NewSession()
	properties, err := c.SessionProperties(ctx, id)
	if err == nil {
		err = properties.Decode(&s)
	}
	if c.hosts != nil { // the host does not decide which session this is
		name, _ := SplitID(id)
		h := &host{Host: Host{Name: name}}
		s.Id, s.Parent, s.ForkedFrom = id, h.idOn(s.Parent), h.idOn(s.ForkedFrom)
	}
	return s, err
}

// SendKeys presses keys, which are named as in tmux.
func (c *Client) SendKeys(ctx context.Context, id string, keys ...string) error {
	return c.session(ctx, id, "SendKeys", []any{keys})
}

// Approve approves the pending permission request of the session's agent by pressing the keys that
// its definition specifies.
func (c *Client) Approve(ctx context.Context, id string) error {
	return c.session(ctx, id, "Approve", nil)
}

// Deny denies the pending permission request in the same way.
func (c *Client) Deny(ctx context.Context, id string) error { return c.session(ctx, id, "Deny", nil) }

// ContinueAfterLimit gives the session's agent, which has reached a usage limit, ContinueText=;
// with ifDue, only if ContinueTimestamp has passed.
func (c *Client) ContinueAfterLimit(ctx context.Context, id string, ifDue bool) error {
	var flags uint64
	if ifDue {
		flags = dbusapi.ContinueIfDue
	}
	const method = dbusapi.SessionInterface + ".ContinueAfterLimit"
	return c.ofSession(ctx, id, method, slowTimeout, []any{flags})
}

// Capture returns the last lines of the session's screen and history. flags are the Capture
// constants of package dbusapi.
func (c *Client) Capture(ctx context.Context, id string, lines uint32, flags uint64) (string, error) {
	var text string
	err := c.session(ctx, id, "Capture", []any{lines, flags}, &text)
	return text, err
}

// OpenLog returns the session's log, open for reading; the caller closes it.
func (c *Client) OpenLog(ctx context.Context, id string) (*os.File, error) {
	on, id, err := c.route(ctx, id)
	if err != nil {
		return nil, err
	}
	if !on.conn.SupportsUnixFDs() {
		return nil, errors.New("file descriptors cannot be passed over this connection")
	}
	var fd dbus.UnixFD
	if err := on.session(ctx, id, "OpenLog", nil, &fd); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "the log of "+id), nil
}

// AttachCommand returns the command that attaches to the session's terminal, and the environment
// variables (NAME=VALUE) that it requires.
func (c *Client) AttachCommand(ctx context.Context, id string) (argv, environment []string, err error) {
	err = c.session(ctx, id, "GetAttachCommand", nil, &argv, &environment)
	return argv, environment, err
}

// Explain returns how the session's state, activity and attention were determined.
func (c *Client) Explain(ctx context.Context, id string) ([]dbusapi.Explanation, error) {
	var rows []dbusapi.Explanation
	err := c.session(ctx, id, "Explain", nil, &rows)
	return rows, err
}

// Variables returns the environment variables of the session's last run with their sources, those
// of an earlier run that the last run did not have, and the PATH of the last run.
func (c *Client) Variables(
	ctx context.Context, id string,
) (variables, missing []dbusapi.Variable, path string, err error) {
	err = c.session(ctx, id, "GetEnvironment", nil, &variables, &missing, &path)
	return variables, missing, path, err
}

// Acknowledge records that a person has seen the session's request, so that nobody is notified of
// it any more.
func (c *Client) Acknowledge(ctx context.Context, id string) error {
	return c.session(ctx, id, "Acknowledge", nil)
}

// ConfirmNotification records that a notification of the session was shown on this machine. since
// is the session's AttentionTimestamp, or its StateChangeTimestamp if its Attention is empty.
func (c *Client) ConfirmNotification(ctx context.Context, id string, since uint64) error {
	return c.session(ctx, id, "ConfirmNotification", []any{since})
}

// SetDescription sets the session's description.
func (c *Client) SetDescription(ctx context.Context, id, description string) error {
	return c.session(ctx, id, "SetDescription", []any{description})
}

// SetLabels replaces the session's labels.
func (c *Client) SetLabels(ctx context.Context, id string, labels map[string]string) error {
	return c.session(ctx, id, "SetLabels", []any{labels})
}

// SetOnLogin sets what happens with the session at login: ignore, resume or start.
func (c *Client) SetOnLogin(ctx context.Context, id, onLogin string) error {
	return c.session(ctx, id, "SetOnLogin", []any{onLogin})
}

// SetUnitProperties sets properties of the session's scope, immediately and for all later runs.
func (c *Client) SetUnitProperties(ctx context.Context, id string, properties []dbusapi.UnitProperty) error {
	return c.session(ctx, id, "SetUnitProperties", []any{properties})
}
