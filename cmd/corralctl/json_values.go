package main

import (
	"errors"
	"strings"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/dbusapi/client"
)

// The types below are what --json prints besides the properties of the bus. docs/reference/json.md
// documents the fields; existing fields must stay.

// statusValue is one session of status.
type statusValue struct {
	client.Session
	Runs           []dbusapi.RunRow
	UnitProperties map[string]any
	Processes      []processValue
	Outside        []strayValue
	Problems       []string
	Screen         []string
}

type strayValue struct {
	PID          uint32
	Name         string
	ControlGroup string
}

type processValue struct {
	PID     int
	Command []string
}

func (s sessionStatus) value() statusValue {
	v := statusValue{Session: s.session, Runs: s.session.Runs, Processes: []processValue{}, Outside: []strayValue{},
		Problems: []string{}, Screen: []string{}}
	v.UnitProperties = make(map[string]any, len(s.session.UnitProperties))
	for _, p := range s.session.UnitProperties {
		v.UnitProperties[p.Name] = plainValue(p.Value)
	}
	if v.Runs == nil {
		v.Runs = []dbusapi.RunRow{}
	}
	for _, p := range s.processes {
		v.Processes = append(v.Processes, processValue{p.pid, p.argv})
	}
	for _, s := range s.strays {
		v.Outside = append(v.Outside, strayValue{s.PID, s.Name, s.ControlGroup})
	}
	for _, p := range s.problems {
		v.Problems = append(v.Problems, p.Text)
	}
	if s.screen != "" {
		v.Screen = strings.Split(s.screen, "\n")
	}
	return v
}

// waitValue is one session of wait.
type waitValue struct {
	Id             string //nolint:revive // the contract's name
	State          string
	Activity       string
	Attention      string
	Result         string
	Reason         string
	ExecMainCode   int32
	ExecMainStatus int32
	ExitCode       int
}

func (w *waiter) values() []waitValue {
	values := []waitValue{}
	for _, id := range w.watch.ids {
		s := w.sessions[id]
		if s == nil {
			continue // it could not be waited for; the error has the reason
		}
		code := 0
		if f := (*failure)(nil); errors.As(w.results[id], &f) {
			code = f.code
		}
		values = append(values,
			waitValue{s.Id, s.State, s.Activity, s.Attention, s.Result, s.Reason, s.ExecMainCode, s.ExecMainStatus, code})
	}
	return values
}

// isValue is one answer of is-active, is-failed and is-waiting.
type isValue struct {
	Id        string //nolint:revive // the contract's name
	State     string
	Activity  string
	Attention string
	Is        bool
}

// screenValue is one screen of peek.
type screenValue struct {
	Id     string //nolint:revive // the contract's name
	Screen []string
}

// versionValue is what version prints.
type versionValue struct {
	Corralctl string
	Corrald   string
}
