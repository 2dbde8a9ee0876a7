package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
)

// pager stands behind stdout where that is a terminal: what fits on it is printed as it is; what does not goes through the user's pager.
type pager struct {
	terminal io.Writer
	program  string
	room     int          // lines that the terminal shows
	held     bytes.Buffer // until it is known whether it fits
	command  *exec.Cmd    // nil until it does not fit
	in       io.WriteCloser
}

// startPager puts a pager behind stdout, if there is a terminal and a pager.
func (c *ctl) startPager() {
	if c.outTTY == nil || c.noPager || c.pager != nil {
		return
	}
	program := "less"
	for _, name := range []string{"PAGER", "SYSTEMD_PAGER", "CORRAL_PAGER"} {
		if value, ok := os.LookupEnv(name); ok {
			program = value
		}
	}
	if _, err := exec.LookPath(program); program == "" || program == "cat" || err != nil && program == "less" {
		return
	}
	c.pager = &pager{terminal: os.Stdout, program: program, room: c.outTTY.height - 1}
	c.out = bufio.NewWriterSize(c.pager, 4<<10)
}

// Write takes what is to be shown.
func (p *pager) Write(text []byte) (int, error) {
	if p.command != nil {
		return p.in.Write(text)
	}
	p.held.Write(text)
	if bytes.Count(p.held.Bytes(), []byte("\n")) <= p.room {
		return len(text), nil
	}
	if err := p.start(); err != nil {
		return 0, err
	}
	_, err := p.in.Write(p.held.Bytes())
	return len(text), err
}

func (p *pager) start() error {
	p.command = exec.Command("sh", "-c", p.program) // a command line, as for systemd's own tools
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
		_, err := p.terminal.Write(p.held.Bytes())
		return err
	}
	_ = p.in.Close()
	_ = p.command.Wait() // left early or not, the user has seen what he wanted to see
	return nil
}
