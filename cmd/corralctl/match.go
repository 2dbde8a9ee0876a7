package main

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
)

// known is a session that ids on the command line are matched against.
type known struct {
	id       string
	archived bool
}

// match returns the ids that a word names: itself, if there is such a session; what it matches, if it is a glob; else the one id that begins with it.
// Archived sessions are only named in full, or with all. Errors: *failure, without the verb in it.
func match(word string, sessions []known, all bool) ([]string, error) {
	var ids []string
	glob := strings.ContainsAny(word, "*?[")
	for _, s := range sessions {
		if s.id == word {
			return []string{word}, nil
		}
		if s.archived && !all {
			continue
		}
		if glob {
			ok, err := path.Match(word, s.id)
			if err != nil {
				return nil, &failure{code: exitUsage, message: fmt.Sprintf("%q is no pattern", word)}
			}
			if ok {
				ids = append(ids, s.id)
			}
		} else if word != "" && strings.HasPrefix(s.id, word) {
			ids = append(ids, s.id)
		}
	}
	if len(ids) == 0 && glob {
		return nil, &failure{code: exitNoSession, message: fmt.Sprintf("no session matches %q", word)}
	}
	if len(ids) == 0 {
		return nil, &failure{code: exitNoSession, message: "no such session"}
	}
	if !glob && len(ids) > 1 {
		return nil, &failure{code: exitFailed, message: "it could be any of " + strings.Join(ids[:min(len(ids), 5)], ", ")}
	}
	return ids, nil
}

// resolve returns the ids that the words name, each once, in the words' order, all of them for --all; and the first error, after having printed all.
func (c *ctl) resolve(ctx context.Context, words []string) ([]string, error) {
	if len(words) == 0 && !c.all {
		return nil, usagef(c.name, "%s needs the id of a session", c.name)
	}
	sessions, err := c.known(ctx)
	if err != nil {
		return nil, c.cannot(c.doing(), strings.Join(words, " "), err)
	}
	var ids []string
	var failed failures
	for _, word := range words {
		matches, err := match(word, sessions, c.all)
		if err != nil {
			failed.add(c, prefixed(fmt.Sprintf("cannot %s %q: ", c.doing(), word), err))
		}
		ids = append(ids, matches...)
	}
	if len(words) == 0 {
		for _, s := range sessions {
			ids = append(ids, s.id)
		}
	}
	return unique(ids), failed.first()
}

// one resolves a word that has to name a single session.
func (c *ctl) one(ctx context.Context, word string) (string, error) {
	sessions, err := c.known(ctx)
	if err != nil {
		return "", c.cannot(c.doing(), word, err)
	}
	ids, err := match(word, sessions, true)
	if err != nil {
		return "", prefixed(fmt.Sprintf("cannot %s %q: ", c.doing(), word), err)
	}
	if len(ids) > 1 {
		return "", usagef(c.name, "cannot %s %q: it names %d sessions, and one is needed", c.doing(), word, len(ids))
	}
	return ids[0], nil
}

func (c *ctl) known(ctx context.Context) ([]known, error) {
	bus, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := bus.ListSessions(ctx)
	sessions := make([]known, 0, len(rows))
	for _, row := range rows {
		sessions = append(sessions, known{row.ID, row.State == "archived"})
	}
	slices.SortFunc(sessions, func(a, b known) int { return strings.Compare(a.id, b.id) })
	return sessions, err
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

func prefixed(prefix string, err error) error {
	var f *failure
	if errors.As(err, &f) {
		return &failure{f.code, prefix + f.message, f.hint}
	}
	return fmt.Errorf("%s%w", prefix, err)
}

// failures collects what went wrong with several sessions: each is printed when it happens, and the first decides the exit code.
type failures struct{ code int }

func (f *failures) add(c *ctl, err error) {
	code := c.report(err)
	if f.code == 0 {
		f.code = code
	}
}

func (f *failures) first() error { return exit(f.code) }

// each does something with each of the sessions that the words name, many at a time, and goes on after an error. Errors are told in the sessions'
// order; the first one's code is the exit code.
func (c *ctl) each(ctx context.Context, words []string, doing string, do func(ctx context.Context, id string) error) error {
	ids, unresolved := c.resolve(ctx, words)
	if len(ids) == 0 {
		return unresolved
	}
	left := newProgress(c, doing, ids)
	errs := make([]error, len(ids))
	slots := make(chan struct{}, 32)
	var wait sync.WaitGroup
	for i, id := range ids {
		slots <- struct{}{}
		wait.Go(func() {
			errs[i] = do(ctx, id)
			left.done(id)
			<-slots
		})
	}
	wait.Wait()
	left.end()
	var failed failures
	for i, err := range errs {
		if err != nil {
			failed.add(c, c.cannot(c.doing(), ids[i], err))
		}
	}
	if unresolved != nil {
		return unresolved
	}
	return failed.first()
}
