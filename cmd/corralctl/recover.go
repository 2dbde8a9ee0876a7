package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/corrald/corral/dbusapi/client"
)

// recovery is the answer to what to do about a session that cannot be attached to, given in advance. Neither means that it is asked.
type recovery struct {
	resume, tearDown bool
}

// words are the options that give the answer, for corralctl on another machine.
func (r recovery) words() []string {
	words := []string{}
	if r.resume {
		words = append(words, "--resume")
	}
	if r.tearDown {
		words = append(words, "--tear-down")
	}
	return append(words, "--")
}

// recover asks what to do about a session that cannot be attached to, unless the answer is there, and does it. It returns whether the session can be
// attached to now; if not, the error is why, or nil where that was the answer.
func (c *ctl) recover(ctx context.Context, bus *client.Client, id string, why *failure, answer recovery) (bool, error) {
	if answer == (recovery{}) {
		var err error
		if answer, err = c.askRecovery(why); err != nil || answer == (recovery{}) {
			return false, err
		}
	}
	if answer.tearDown {
		if err := bus.StopSession(ctx, id, 0); err != nil {
			return false, c.cannot("tear down", id, err)
		}
		fmt.Fprintf(c.out, "Nothing of session %s runs any more.\n", id)
		return false, nil
	}
	if err := bus.ResumeSession(ctx, id); err != nil {
		if _, _, refused := bus.AttachCommand(ctx, id); refused != nil || !invalidState(err) { // else somebody else was faster
			return false, c.cannot("resume", id, err)
		}
	}
	return true, nil
}

func (c *ctl) askRecovery(why *failure) (recovery, error) {
	in := bufio.NewReader(c.in)
	fmt.Fprintf(c.out, "%s.\n\n  [R]esume     go on with it, and attach\n  [T]ear down  end what is left of it\n  [C]ancel\n\n", capital(why.message))
	for {
		fmt.Fprint(c.out, "Choice: ")
		if err := c.out.Flush(); err != nil {
			return recovery{}, err
		}
		line, err := in.ReadString('\n')
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "r", "resume":
			return recovery{resume: true}, nil
		case "t", "tear down", "teardown":
			return recovery{tearDown: true}, nil
		case "c", "cancel":
			return recovery{}, nil
		}
		if errors.Is(err, io.EOF) {
			fmt.Fprintln(c.out)
			return recovery{}, nil
		}
		if err != nil {
			return recovery{}, err
		}
	}
}

func capital(sentence string) string {
	return strings.ToUpper(sentence[:1]) + sentence[1:]
}
