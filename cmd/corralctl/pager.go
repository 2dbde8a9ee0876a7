package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"strings"
)

// pager is the writer between stdout and a terminal. It prints output that fits the terminal
// directly, and runs the user's pager for longer output.
type pager struct {
	terminal io.Writer
	program  string
	height   int          // lines that fit the terminal
	buffer   bytes.Buffer // output so far, until it does not fit
	command  *exec.Cmd    // nil until it does not fit
	in       io.WriteCloser
}

// startPager sends stdout through the user's pager, if stdout is a terminal and there is a pager.
func (c *ctl) startPager() {
	if c.outTTY != nil {
		c.startPagerFor(c.outTTY.height-1, chosenPager())
	}
}

// startPagerFor sends output of more lines than these through a pager, if stdout is a terminal.
func (c *ctl) startPagerFor(lines int, program string) {
	if c.outTTY == nil || c.noPager || c.pager != nil || program == "" || program == "cat" {
		return
	}
	c.pager = &pager{terminal: os.Stdout, program: program, height: lines}
	c.out = bufio.NewWriterSize(c.pager, 4<<10)
}

// chosenPager returns the command line of the user's pager, from the same variables as systemd's
// tools. It is less if none is set or the program does not exist, and "" for none.
func chosenPager() string {
	program := "less"
	for _, name := range []string{"PAGER", "SYSTEMD_PAGER", "CORRAL_PAGER"} {
		if value, ok := os.LookupEnv(name); ok {
			program = value
		}
	}
	for _, candidate := range []string{program, "less"} {
		if strings.TrimSpace(candidate) == "" || isRunnable(candidate) {
			return strings.TrimSpace(candidate)
		}
	}
	return ""
}

// isRunnable returns whether the program that a command line begins with exists. Lines that only a
// shell can interpret count as runnable.
func isRunnable(line string) bool {
	for _, word := range strings.Fields(line) {
		switch {
		case strings.ContainsAny(word, "'\"\\$`~;&|<>()*?[#!{"):
			// only a shell can interpret it
			return true
		case strings.Contains(word, "="): // an assignment before the program
			continue
		}
		_, err := exec.LookPath(word)
		return err == nil
	}
	return false
}

// Write implements io.Writer.
func (p *pager) Write(text []byte) (int, error) {
	if p.command != nil {
		return p.in.Write(text)
	}
	p.buffer.Write(text)
	if bytes.Count(p.buffer.Bytes(), []byte("\n")) <= p.height {
		return len(text), nil
	}
	if err := p.start(); err != nil {
		return 0, err
	}
	_, err := p.in.Write(p.buffer.Bytes())
	return len(text), err
}

func (p *pager) start() error {
	p.command = exec.Command("sh", "-c", p.program)
	p.command.Env = append(os.Environ(), "LESS=FRSXMK", "LESSSECURE=1")
	p.command.Stdout, p.command.Stderr = os.Stdout, os.Stderr
	var err error
	if p.in, err = p.command.StdinPipe(); err != nil {
		return err
	}
	return p.command.Start()
}

// close prints the output that fits, or waits until the user quits the pager.
func (p *pager) close() error {
	if p.command == nil {
		_, err := p.terminal.Write(p.buffer.Bytes())
		return err
	}
	_ = p.in.Close()
	_ = p.command.Wait() // the user may quit it early
	return nil
}
