package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
)

// roleWord is the first argument of this program when it plays a part in a measurement; the second
// says which.
const roleWord = "as"

// The parts. Those with a stage are told where it is.
const (
	roleExit    = "exit"    // STAGE: exits with a code when it is told to, and notes when
	roleParent  = "parent"  // STAGE: starts such a program, waits for its end, and tells it on the bus
	rolePrint   = "print"   // STAGE BYTES: prints as fast as it can, and notes how long it took
	roleEcho    = "echo"    // STAGE: prints each key that is pressed
	roleChatter = "chatter" // prints a line every now and then, for ever
	roleBystand = "bystand" // holds a connection to the bus, for ever
	roleStatus  = "status"  // STAGE: tells its terminal what it does whenever it is told to, and notes when
	roleEmit    = "emit"    // STAGE: tells the same on the bus itself
	roleLines   = "lines"   // STAGE: prints numbered lines, and each key that is pressed, and dies when it is told to
	roleSurvey  = "survey"  // DIRECTORY: lists the scopes and reads the records of the sessions there
)

// play plays a part and returns the exit status.
func play(role string, args []string) int {
	parts := map[string]struct {
		args int
		play func([]string) error
	}{
		roleExit:    {1, func(args []string) error { return exitOnCue(args[0]) }},
		roleParent:  {1, func(args []string) error { return parentOfExits(args[0]) }},
		rolePrint:   {2, func(args []string) error { return printAll(args[0], args[1]) }},
		roleEcho:    {1, func(args []string) error { return echoKeys(args[0]) }},
		roleChatter: {0, func([]string) error { return chatter() }},
		roleBystand: {0, func([]string) error { return bystand() }},
		roleStatus:  {1, func(args []string) error { return tellStatus(args[0]) }},
		roleEmit:    {1, func(args []string) error { return emitSignals(args[0]) }},
		roleLines:   {1, func(args []string) error { return printLines(args[0]) }},
		roleSurvey:  {1, func(args []string) error { return survey(args[0]) }},
	}
	part, known := parts[role]
	err := fmt.Errorf("there is no role %q with %d arguments", role, len(args))
	if known && len(args) == part.args {
		err = part.play(args)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench %s: %v\n", role, err)
		return 1
	}
	return 0
}

// bystand is the least that a daemon on the bus could be.
func bystand() error {
	conn, err := connect(context.Background())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals)
	if _, err := fmt.Println("connected"); err != nil {
		return err
	}
	<-signals
	return nil
}
