package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/supervisor/store"
)

// savedList reads the sessions from the disk, where the daemon could not be asked because of err. The list has err as what is left to report.
func (c *ctl) savedList(doing string, err error) (sessionList, error) {
	if !client.Away(err) || c.host != "" {
		return sessionList{}, err
	}
	sessions, readErr := savedSessions()
	if readErr != nil || len(sessions) == 0 {
		return sessionList{}, err
	}
	f := c.cannot(doing, "", err)
	f.code = exitUnreachable
	f.message = c.unreachable(err) + ": this is what was saved"
	return sessionList{sessions: sessions, leftovers: leftovers, unreachable: f}, nil
}

func savedSessions() ([]client.Session, error) {
	records, err := store.Read(stateDirectory())
	if err != nil {
		return nil, err
	}
	sessions := make([]client.Session, 0, len(records))
	for _, record := range records {
		sessions = append(sessions, savedSession(record))
	}
	slices.SortFunc(sessions, func(a, b client.Session) int { return strings.Compare(a.Id, b.Id) })
	return sessions, nil
}

// savedSession is what a record tells for certain.
func savedSession(record *session.Session) client.Session {
	s := client.Session{
		Id: record.ID, Agent: record.Agent, Description: record.Description, Command: record.Command, WorkingDirectory: record.WorkingDirectory,
		Labels: record.Labels, OnLogin: record.OnLogin, Timestamp: uint64(record.Created.UnixMicro()), NRuns: record.NRuns,
	}
	if record.Worktree != nil {
		s.Worktree = record.Worktree.Branch
	}
	if record.Run != nil {
		s.Unit = record.Run.Unit
	}
	for _, r := range record.Accounts() {
		s.Runs = append(s.Runs, savedRun(r))
	}
	if record.Run != nil && !record.Run.Ended() && record.Archived.IsZero() {
		s.State = wording.UnknownState
		return s
	}
	view := record.View()
	s.State, s.Result, s.Reason = string(view.State), view.Result, view.Reason
	if !view.Since.IsZero() {
		s.StateChangeTimestamp = uint64(view.Since.UnixMicro())
	}
	return s
}

func savedRun(r session.Account) dbusapi.RunRow {
	row := dbusapi.RunRow{ID: r.ID, Start: uint64(r.Began.UnixMicro()), Result: r.Result, Code: int32(r.Code), Status: int32(r.Status), Reason: r.Reason}
	if !r.Ended.IsZero() {
		row.End = uint64(r.Ended.UnixMicro())
	}
	return row
}

// stateDirectory is where the daemon keeps its state, as long as it cannot be asked.
func stateDirectory() string {
	return filepath.Join(baseDirectory(os.Getenv("XDG_STATE_HOME"), filepath.Join(os.Getenv("HOME"), ".local/state")), "corral")
}

// savedStatus prints what is saved of the sessions that words name, or how many there are.
func (c *ctl) savedStatus(words []string, err error) error {
	list, err := c.savedList("show the status", err)
	if err != nil {
		return c.cannot("show the status", "", err)
	}
	if c.wantsJSON() {
		return c.savedJSON(words, list)
	}
	if len(words) == 0 && !c.all {
		fmt.Fprintf(c.out, "%s corrald is not running\n", c.paint(wording.Dim, "○"))
		c.field("Sessions", "%d saved in %s", len(list.sessions), stateDirectory())
		return list.unreachable
	}
	candidates := make([]known, len(list.sessions))
	for i, s := range list.sessions {
		candidates[i] = known{s.Id, s.State}
	}
	for _, word := range words {
		ids, err := match(word, candidates, c.all)
		if err != nil {
			c.report(c.unmatched(word, err))
		}
		for _, id := range ids {
			i := slices.IndexFunc(list.sessions, func(s client.Session) bool { return s.Id == id })
			c.printStatus(statusOf{session: list.sessions[i]})
		}
	}
	return list.unreachable
}

// savedJSON prints what is saved as status --json prints it. Of the daemon itself there is nothing to tell.
func (c *ctl) savedJSON(words []string, list sessionList) error {
	values := []statusValue{}
	for _, s := range list.sessions {
		if len(words) == 0 && c.all || slices.ContainsFunc(words, func(word string) bool {
			ids, err := match(word, []known{{s.Id, s.State}}, c.all)
			return err == nil && len(ids) == 1
		}) {
			values = append(values, statusOf{session: s}.value())
		}
	}
	if len(words) > 0 || c.all {
		if err := c.printJSON(values); err != nil {
			return err
		}
	}
	return list.unreachable
}
