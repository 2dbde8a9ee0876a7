package dbusapi_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
)

func TestSessionPath_IsEscapedLikeSystemd(t *testing.T) {
	for id, label := range map[string]string{
		"fix-auth": "fix_2dauth",
		"shop":     "shop",
		"3d":       "_33d",
		"a.b_c-2":  "a_2eb_5fc_2d2",
		"0":        "_30",
	} {
		path := dbusapi.SessionPath(id)
		assert.Equal(t, dbusapi.SessionsPath+"/"+dbus.ObjectPath(label), path)
		assert.True(t, path.IsValid())
		got, ok := dbusapi.SessionID(path)
		assert.True(t, ok)
		assert.Equal(t, id, got)
	}
}

func TestSessionID_RejectsOtherPaths(t *testing.T) {
	for _, path := range []dbus.ObjectPath{
		"", "/", "/other/session/shop", dbusapi.ManagerPath,
		dbusapi.SessionsPath, dbusapi.SessionsPath + "/", dbusapi.SessionsPath + "x/shop",
		dbusapi.SessionsPath + "/a/b", dbusapi.SessionsPath + "/3d", dbusapi.SessionsPath + "/fix-auth",
		dbusapi.SessionsPath + "/a_", dbusapi.SessionsPath + "/a_2", dbusapi.SessionsPath + "/a_2D",
		dbusapi.SessionsPath + "/a_zz", dbusapi.SessionsPath + "/a_61",
	} {
		_, ok := dbusapi.SessionID(path)
		assert.False(t, ok, "%q", path)
	}
}

// FuzzSessionID checks that SessionPath and SessionID are inverse functions.
func FuzzSessionID(f *testing.F) {
	for _, seed := range []string{"fix-auth", "_2d", "a_", "/", "\x00", "你好"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if text != "" {
			path := dbusapi.SessionPath(text)
			require.True(t, path.IsValid())
			id, ok := dbusapi.SessionID(path)
			require.True(t, ok)
			require.Equal(t, text, id)
		}
		path := dbusapi.SessionsPath + "/" + dbus.ObjectPath(text)
		if id, ok := dbusapi.SessionID(path); ok {
			require.Equal(t, path, dbusapi.SessionPath(id))
		}
	})
}

// TestErrorName_CoversTheContract checks every error name that the comment in the Manager's
// interface definition lists.
func TestErrorName_CoversTheContract(t *testing.T) {
	_, text, _ := strings.Cut(dbusapi.ManagerXML, "Errors, io.github.corrald.Corral1.Error.*:")
	text, _, _ = strings.Cut(text, "The message is")
	ours, standard, ok := strings.Cut(text, "; beside them the standard")
	require.True(t, ok)
	standard, _, _ = strings.Cut(standard, " of org.freedesktop")
	require.Len(t, strings.Fields(ours), 19)
	for prefix, names := range map[string]string{
		"io.github.corrald.Corral1.Error.": ours,
		"org.freedesktop.DBus.Error.":      standard + " NotSupported AccessDenied",
	} {
		for _, short := range strings.Fields(names) {
			assert.Equal(t, prefix+short, dbusapi.ErrorName(short))
			err := fmt.Errorf("wrapped: %w", *dbus.NewError(prefix+short, []any{"text"}))
			assert.Equal(t, short, dbusapi.ShortErrorName(err))
		}
	}
	assert.Empty(t, dbusapi.ShortErrorName(errors.New("no such session")))
	assert.Empty(t, dbusapi.ShortErrorName(*dbus.NewError("org.freedesktop.systemd1.NoSuchUnit", nil)),
		"an error of another service")
	assert.Empty(t, dbusapi.ShortErrorName(nil))
}
