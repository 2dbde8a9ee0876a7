package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
)

// roleWord is the first argument of this program when it plays a role in a measurement; the second
// one is the role.
const roleWord = "as"

// The roles with their arguments. STAGE is the directory of a stage.
const (
	roleExit    = "exit"    // STAGE: records the time and exits with a code on cue
	roleParent  = "parent"  // STAGE: starts such a program, waits for its exit, and emits a signal
	rolePrint   = "print"   // STAGE BYTES: prints as fast as it can and records the times
	roleEcho    = "echo"    // STAGE: prints each key that is pressed
	roleChatter = "chatter" // prints a line every 100 ms, endlessly
	roleBystand = "bystand" // keeps a bus connection open
	roleStatus  = "status"  // STAGE: writes a status report to its terminal on cue and records the time
	roleEmit    = "emit"    // STAGE: emits a signal on cue and records the time
	roleLines   = "lines"   // STAGE: prints numbered lines and each key; kills itself on cue
	roleEvents  = "events"  // FIFO: receives the events of supervisord, and writes a byte for each
	roleSurvey  = "survey"  // DIRECTORY: lists the scopes and reads the session records below it
)

// playRole plays a role and returns the exit status.
func playRole(role string, args []string) int {
	play := map[string]func(args []string) error{
		roleExit: exitOnCue, roleParent: parentOfExits, rolePrint: printAll, roleEcho: echoKeys, roleChatter: chatter,
		roleBystand: bystand, roleStatus: reportStatus, roleEmit: emitSignals, roleLines: printLines, roleSurvey: survey,
		roleEvents: reportEvents,
	}[role]
	if err := play(args); err != nil {
		fmt.Fprintf(os.Stderr, "bench %s: %v\n", role, err)
		return 1
	}
	return 0
}

// bystand is the simplest possible daemon on the bus: it only keeps a connection open.
func bystand([]string) error {
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
