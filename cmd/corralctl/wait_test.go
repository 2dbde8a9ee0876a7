package main

import (
	"context"
	"errors"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi/client"
)

func changed(id, state string) client.SessionChanged {
	return client.SessionChanged{ID: id, Properties: client.Properties{"State": dbus.MakeVariant(state)}}
}

func TestWaitingEndsWhenItShould(t *testing.T) {
	for name, row := range map[string]struct {
		first  string // state
		until  []string
		events []client.Event
		over   bool
		code   int
	}{
		"it has ended before":               {first: "completed", over: true},
		"it was never started":              {first: "created"},
		"it is stale, its agent may live":   {first: "stale"},
		"it ends":                           {first: "running", events: []client.Event{changed("shop", "stopping"), changed("shop", "stopped")}, over: true, code: 3},
		"another one ends":                  {first: "running", events: []client.Event{changed("api", "failed")}},
		"it is removed":                     {first: "running", events: []client.Event{client.SessionRemoved{ID: "shop"}}, over: true, code: 4},
		"another one is removed":            {first: "running", events: []client.Event{client.SessionRemoved{ID: "api"}}},
		"it is removed after its end":       {first: "running", events: []client.Event{changed("shop", "completed"), client.SessionRemoved{ID: "shop"}}, over: true},
		"it becomes what is waited for":     {first: "starting", until: []string{"running"}, events: []client.Event{changed("shop", "running")}, over: true},
		"a failure is waited for":           {first: "running", until: []string{"failed"}, events: []client.Event{changed("shop", "failed")}, over: true},
		"it ends as is not waited for":      {first: "starting", until: []string{"running"}, events: []client.Event{changed("shop", "completed")}, over: true, code: 1},
		"an activity is waited for":         {first: "running", until: []string{"waiting"}, events: []client.Event{client.SessionChanged{ID: "shop", Properties: client.Properties{"Activity": dbus.MakeVariant("waiting")}}}, over: true},
		"an event that is of no use is not": {first: "running", events: []client.Event{client.SessionNew{ID: "shop"}, client.DaemonBack{}}},
	} {
		t.Run(name, func(t *testing.T) {
			w := &waiter{until: row.until, ids: []string{"shop"}, ends: map[string]error{}, sessions: map[string]*client.Session{
				"shop": {Id: "shop", State: row.first},
			}}
			w.look("shop")
			for _, event := range row.events {
				require.NoError(t, w.apply(event))
			}
			err, over := w.ends["shop"]
			assert.Equal(t, row.over, over)
			code := 0
			var f *failure
			if errors.As(err, &f) {
				code = f.code
			}
			assert.Equal(t, row.code, code)
		})
	}
}

func TestWaitingEndsWithTheDaemon(t *testing.T) {
	err := new(waiter).apply(client.DaemonGone{})
	var f *failure
	require.ErrorAs(t, err, &f)
	assert.Equal(t, exitUnreachable, f.code)
}

func TestATimeoutOfWaitHasItsOwnCode(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 0)
	defer cancel()
	var f *failure
	require.ErrorAs(t, new(ctl).waitError(ctx, "", ctx.Err()), &f)
	assert.Equal(t, failure{code: exitTimeout}, *f)
}
