package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/dbusapi/word"
)

// appliesToAll has, for a verb, whether --all includes a session that is not archived: it includes
// those that the verb can do something with. For other verbs it includes all of them.
var appliesToAll = map[string]func(dbusapi.SessionRow) bool{
	"start":   hasEnded,
	"resume":  func(s dbusapi.SessionRow) bool { return s.State == word.Suspended },
	"restart": isLive, "suspend": isLive, "freeze": isLive, "thaw": isLive, "kill": isLive, "send": isLive, "peek": isLive,
	"continue": func(s dbusapi.SessionRow) bool { return s.Attention == word.Limit },
	"archive":  hasEnded,
}

func isLive(s dbusapi.SessionRow) bool     { return !wording.IsEnded(s.State) }
func hasEnded(s dbusapi.SessionRow) bool   { return wording.IsEnded(s.State) }
func isArchived(s dbusapi.SessionRow) bool { return s.State == word.Archived }

// isInAll returns whether --all of a verb includes a session.
func isInAll(verb string, s dbusapi.SessionRow) bool {
	applies := appliesToAll[verb]
	return !isArchived(s) && (applies == nil || applies(s))
}

// match returns the ids that a word matches: the session with exactly that id; else, for a glob,
// all that it matches; else the one session whose id begins with the word. Archived sessions are
// only matched by their full id, or if all is set. Among sessions of several hosts, a word without
// a host matches the ids on each host: it may be ambiguous. Errors: *failure; its message does not
// have the verb yet, and its hint is the id that was probably meant.
func match(word string, sessions []dbusapi.SessionRow, all bool) ([]string, error) {
	var exact, ids []string
	glob := strings.ContainsAny(word, "*?[")
	_, wanted := client.SplitID(word)
	for _, s := range sessions {
		if s.ID == word {
			return []string{word}, nil
		}
		id := s.ID
		if wanted == word {
			_, id = client.SplitID(s.ID)
		}
		if id == word {
			exact = append(exact, s.ID)
		}
		if isArchived(s) && !all {
			continue
		}
		if glob {
			ok, err := path.Match(word, id)
			if err != nil {
				return nil, &failure{code: exitUsage, message: fmt.Sprintf("invalid pattern %q", word)}
			}
			if ok {
				ids = append(ids, s.ID)
			}
		} else if wanted != "" && strings.HasPrefix(id, word) {
			ids = append(ids, s.ID)
		}
	}
	if len(exact) > 0 {
		ids, glob = exact, false
	}
	if len(ids) == 0 && glob {
		return nil, &failure{code: exitNoSession, message: fmt.Sprintf("no session matches %q", word)}
	}
	if len(ids) == 0 {
		return nil, &failure{code: exitNoSession, message: "no such session", hint: nearestID(word, sessions)}
	}
	if !glob && len(ids) > 1 {
		return nil, &failure{code: exitFailed, message: "ambiguous id: matches " + strings.Join(ids[:min(len(ids), 5)], ", ")}
	}
	return ids, nil
}

// match is the function match for an argument of the command line. A word without a host is refused
// while one of several hosts cannot be asked: the session that is meant may be there.
func (c *ctl) match(word string, sessions []dbusapi.SessionRow) ([]string, error) {
	ids, err := match(word, sessions, c.all)
	if len(c.silent) == 0 || strings.Contains(word, ":") || slices.Contains(ids, word) ||
		err == nil && strings.ContainsAny(word, "*?[") {
		return ids, err
	}
	f := &failure{code: exitUnreachable, message: fmt.Sprintf("the session may be on %s, which cannot be reached",
		c.hostNamed(c.silent[0].Host))}
	if len(ids) == 1 {
		f.hint = ids[0]
	}
	return nil, f
}

// resolve returns the ids that the words match, each once and in the order of the words, or all ids
// for --all. It prints every error and returns the exit code of the first.
func (c *ctl) resolve(ctx context.Context, words []string) ([]string, error) {
	return c.resolveIncluded(ctx, words, func(s dbusapi.SessionRow) bool { return isInAll(c.name, s) })
}

// resolveIncluded is resolve, with --all for the sessions that isIncluded returns true for.
func (c *ctl) resolveIncluded(ctx context.Context, words []string, isIncluded func(dbusapi.SessionRow) bool) (
	[]string, error,
) {
	if len(words) == 0 && !c.all {
		return nil, usagef(c.name, "%s: missing ID", c.name)
	}
	sessions, err := c.candidates(ctx)
	if err != nil {
		return nil, c.cannot(c.doing(), strings.Join(words, " "), err)
	}
	ids, failed := c.matchAll(words, sessions, isIncluded)
	return ids, failed.first()
}

// matchAll returns the ids that the words match, each once and in the order of the words; without
// words, those of the sessions that isIncluded returns true for. It prints every error.
func (c *ctl) matchAll(words []string, sessions []dbusapi.SessionRow, isIncluded func(dbusapi.SessionRow) bool) (
	ids []string, failed failures,
) {
	for _, word := range words {
		matches, err := c.match(word, sessions)
		if err != nil {
			failed.add(c, c.unmatchedError(word, err))
		}
		ids = append(ids, matches...)
	}
	for _, s := range sessions {
		if len(words) == 0 && isIncluded(s) {
			ids = append(ids, s.ID)
		}
	}
	return unique(ids), failed
}

// resolveOne resolves a word that must match a single session.
func (c *ctl) resolveOne(ctx context.Context, word string) (string, error) {
	sessions, err := c.candidates(ctx)
	if err != nil {
		return "", c.cannot(c.doing(), word, err)
	}
	ids, err := c.match(word, sessions)
	if err != nil {
		return "", c.unmatchedError(word, err)
	}
	if len(ids) > 1 {
		return "", usagef(c.name, "cannot %s %q: expected one session, and it matches %d", c.doing(), word, len(ids))
	}
	return ids[0], nil
}

// candidates returns the sessions that ids on a command line are matched against, sorted by id.
func (c *ctl) candidates(ctx context.Context) ([]dbusapi.SessionRow, error) {
	bus, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := bus.ListSessions(ctx)
	slices.SortFunc(rows, func(a, b dbusapi.SessionRow) int { return strings.Compare(a.ID, b.ID) })
	return rows, c.tolerate(err)
}

func unique(ids []string) []string {
	var once []string
	for _, id := range ids {
		if !slices.Contains(once, id) {
			once = append(once, id)
		}
	}
	return once
}

// unmatchedError adds the verb to an error of match.
func (c *ctl) unmatchedError(word string, err error) error {
	var f *failure
	if errors.As(err, &f) && f.hint != "" {
		f.hint = "corralctl " + c.name + " " + f.hint
	}
	return prefixed(fmt.Sprintf("cannot %s %q: ", c.doing(), word), err)
}

func prefixed(prefix string, err error) error {
	var f *failure
	if errors.As(err, &f) {
		return &failure{f.code, prefix + f.message, f.hint}
	}
	return fmt.Errorf("%s%w", prefix, err)
}

// nearestID returns the id that was probably meant by an unknown one, "" if there is none.
func nearestID(word string, sessions []dbusapi.SessionRow) string {
	host, wanted := client.SplitID(word)
	var ids []string
	whole := map[string]string{}
	for _, s := range sessions {
		on, id := client.SplitID(s.ID)
		if !isArchived(s) && (host == "" || on == host) {
			ids = append(ids, id)
			whole[id] = s.ID
		}
	}
	return whole[nearestWord(wanted, ids)]
}

// nearestWord returns the candidate that was probably meant: at most a third of the word's letters
// differ. It returns "" if there is none.
func nearestWord(word string, candidates []string) string {
	best, distance := "", 1+max(1, len(word)/3)
	if len(word) < 2 || len(word) > maxID {
		return ""
	}
	for _, candidate := range candidates {
		if d := editDistance(word, candidate); d < distance {
			best, distance = candidate, d
		}
	}
	return best
}

// editDistance returns how many letters have to be added, dropped, replaced or swapped with their
// neighbour to turn a into b.
func editDistance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			differs := 1
			if a[i-1] == b[j-1] {
				differs = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+differs)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}

// maxID is the maximum length of an id.
const maxID = 64

// failures handles the errors of several sessions: each is printed at once, and the first
// determines the exit code.
type failures struct{ code int }

func (f *failures) add(c *ctl, err error) {
	code := c.report(err)
	if f.code == 0 {
		f.code = code
	}
}

func (f *failures) first() error { return exit(f.code) }

// forEach is tryEach for verbs that do not need to know for which sessions do has succeeded.
func (c *ctl) forEach(ctx context.Context, words []string, doing string,
	do func(ctx context.Context, id string) error) error {
	_, err := c.tryEach(ctx, words, doing, do)
	return err
}

// tryEach calls do for each session that the words match, for many at a time, and continues after
// an error. It prints the errors in the order of the sessions; the first determines the exit code.
// It returns the ids of the sessions for which do has succeeded. If the sessions were selected
// together, it may ask before (see confirm), and on a terminal it prints these ids.
func (c *ctl) tryEach(ctx context.Context, words []string, doing string,
	do func(ctx context.Context, id string) error) (succeeded []string, err error) {
	ids, unresolved := c.resolve(ctx, words)
	if len(ids) == 0 {
		return nil, unresolved
	}
	bulk := c.isBulk(words, ids)
	if bulk {
		if err := c.confirm(ctx, ids); err != nil {
			return nil, err
		}
	}
	progress := newProgress(c, doing, ids)
	errs := make([]error, len(ids))
	slots := make(chan struct{}, 32)
	var wait sync.WaitGroup
	for i, id := range ids {
		slots <- struct{}{}
		wait.Go(func() {
			errs[i] = do(ctx, id)
			progress.done(id)
			<-slots
		})
	}
	wait.Wait()
	progress.end()
	var failed failures
	for i, err := range errs {
		if err != nil {
			failed.add(c, c.cannot(c.doing(), ids[i], err))
			continue
		}
		succeeded = append(succeeded, ids[i])
		if bulk && c.outTTY != nil && !c.quiet {
			c.print("%s\n", ids[i])
		}
	}
	return succeeded, cmp.Or(unresolved, failed.first())
}
