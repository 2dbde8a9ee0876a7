package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"strings"
)

// pager stands behind stdout where that is a terminal: what fits on it is printed as it is; what
// does not goes through the user's pager.
type pager struct {
	terminal io.Writer
	program  string
	height   int          // lines that the terminal shows
	buffer   bytes.Buffer // until it is known whether it fits
	command  *exec.Cmd    // nil until it does not fit
	in       io.WriteCloser
}

// startPager puts a pager behind stdout, if there is a terminal and a pager.
func (c *ctl) startPager() {
	if c.outTTY == nil || c.noPager || c.pager != nil {
		return
	}
	program := chosenPager()
	if program == "" || program == "cat" {
		return
	}
	c.pager = &pager{terminal: os.Stdout, program: program, height: c.outTTY.height - 1}
	c.out = bufio.NewWriterSize(c.pager, 4<<10)
}

// chosenPager is the user's pager, a command line as for systemd's own tools; less, where none is
// chosen or what was chosen is not there; "" for none.
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

// isRunnable tells whether a shell would find the program that a command line begins with, as far as
// that is plain to see.
func isRunnable(line string) bool {
	for _, word := range strings.Fields(line) {
		switch {
		case strings.ContainsAny(word, "'\"\\$`~;&|<>()*?[#!{"): // the shell makes something else of it
			return true
		case strings.Contains(word, "="): // a variable for it
			continue
		}
		_, err := exec.LookPath(word)
		return err == nil
	}
	return false
}

// Write takes what is to be shown.
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

// close prints what fits, or waits until the user has read enough.
func (p *pager) close() error {
	if p.command == nil {
		_, err := p.terminal.Write(p.buffer.Bytes())
		return err
	}
	_ = p.in.Close()
	_ = p.command.Wait() // left early or not, the user has seen what he wanted to see
	return nil
}
