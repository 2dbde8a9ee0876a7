package server

import (
	"context"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/dbusapi"
)

// revocable are the methods that begin a run, or may do so, and the one that types text. A call may
// have waited long before its turn comes: behind another one of the same session, or because the
// daemon stood still. Its caller may have given up meanwhile, have reported that nothing was done,
// and have called again.
var revocable = map[string]bool{
	"CreateSession": true, "StartSession": true, "ResumeSession": true, "RestartSession": true, "BeginSession": true,
	"ResumeAll": true, "SendInput": true,
	"Start": true, "Resume": true, "Restart": true,
}

// revoked returns the error of a call that is not carried out because its caller has left the bus,
// nil for any other. Who wants no answer may leave at once.
func (s *Server) revoked(ctx context.Context, msg *dbus.Message) error {
	sender, _ := msg.Headers[dbus.FieldSender].Value().(string)
	if !revocable[member(msg)] || msg.Flags&dbus.FlagNoReplyExpected != 0 || sender == "" {
		return nil
	}
	there := true
	err := s.conn.BusObject().CallWithContext(ctx, "org.freedesktop.DBus.NameHasOwner", 0, sender).Store(&there)
	if err != nil || there { // a bus that cannot be asked revokes nothing
		return nil //nolint:nilerr // see above
	}
	return answer(dbusapi.Timeout, "the caller has left the bus before its call was carried out")
}
