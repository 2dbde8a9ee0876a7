package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// daemonPeer is a peer whose main process the bench starts.
type daemonPeer struct {
	dir     string
	command []string
	cmd     *exec.Cmd
}

func (p *daemonPeer) run() error {
	p.cmd = exec.Command(p.command[0], p.command[1:]...)
	p.cmd.Dir = p.dir
	return p.cmd.Start()
}

func (p *daemonPeer) kill() error {
	err := p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	return err
}

func (p *daemonPeer) close() {
	_ = p.cmd.Process.Signal(unix.SIGTERM)
	_ = p.cmd.Wait()
}

// supervisord runs each service as a program, and reports exits to an event listener, which is this
// program.
type supervisord struct {
	daemonPeer
	events *os.File // a FIFO: a line for each process that has exited
}

func openSupervisord(ctx context.Context, b *bench, dir string) (peer, error) {
	p := &supervisord{daemonPeer: daemonPeer{dir: dir, command: []string{"supervisord", "-n", "-c", dir + "/conf"}}}
	if err := unix.Mkfifo(dir+"/events", 0o600); err != nil {
		return nil, err
	}
	var err error
	if p.events, err = os.OpenFile(dir+"/events", os.O_RDWR, 0); err != nil {
		return nil, err
	}
	listener := strings.Join(b.as(roleEvents, dir+"/events"), " ")
	conf := fmt.Sprintf(`[unix_http_server]
file=%[1]s/socket
[supervisord]
logfile=%[1]s/log
pidfile=%[1]s/pid
childlogdir=%[1]s
[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
[supervisorctl]
serverurl=unix://%[1]s/socket
[eventlistener:bench]
command=%[2]s
events=PROCESS_STATE_EXITED
[include]
files=%[1]s/*.program
`, dir, listener)
	if err := os.WriteFile(dir+"/conf", []byte(conf), 0o600); err != nil {
		return nil, err
	}
	return p, p.restart(ctx)
}

func (p *supervisord) restart(ctx context.Context) error {
	if err := p.run(); err != nil {
		return err
	}
	for range 100 {
		if strings.HasPrefix(p.control(ctx, "status", "bench"), "bench RUNNING") {
			return nil
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return errors.New("supervisord does not run")
}

func (p *supervisord) control(ctx context.Context, args ...string) string {
	return outputOf(ctx, "supervisorctl", append([]string{"-c", p.dir + "/conf"}, args...)...)
}

func (p *supervisord) start(ctx context.Context, name string, command []string) error {
	text := fmt.Sprintf("[program:%s]\ncommand=%s\nautorestart=false\nstartsecs=0\n", name, strings.Join(command, " "))
	if err := os.WriteFile(filepath.Join(p.dir, name+".program"), []byte(text), 0o600); err != nil {
		return err
	}
	return run(ctx, "supervisorctl", "-c", p.dir+"/conf", "update", name)
}

func (p *supervisord) expectEnd(context.Context, string) (func() error, error) {
	return func() error {
		if err := p.events.SetReadDeadline(time.Now().Add(timeout)); err != nil {
			return err
		}
		_, err := p.events.Read(make([]byte, 1))
		return err
	}, nil
}

// reported returns the state, and the words of the log: the state does not contain the status.
func (p *supervisord) reported(ctx context.Context, name string) string {
	words := strings.Fields(p.control(ctx, "status", name))
	if len(words) < 2 {
		return "nothing"
	}
	text := words[1]
	log, _ := os.ReadFile(p.dir + "/log")
	for line := range strings.Lines(string(log)) {
		if _, how, ok := strings.Cut(line, "exited: "+name+" "); ok {
			text = words[1] + " " + strings.TrimSpace(how) + " in the log"
		}
	}
	return text
}

func (p *supervisord) pid(ctx context.Context, name string) int {
	pid, _ := strconv.Atoi(p.control(ctx, "pid", name))
	return pid
}

func (p *supervisord) processes(context.Context) ([]int, error) { return []int{p.cmd.Process.Pid}, nil }

func (p *supervisord) victims(ctx context.Context, _ string) []victim {
	return []victim{{"supervisord", p.kill, func() error { return p.restart(ctx) }}}
}

// reportEvents is the event listener: it writes a byte to the FIFO for each event of supervisord.
func reportEvents(args []string) error {
	fifo, err := os.OpenFile(args[0], os.O_RDWR, 0)
	if err != nil {
		return err
	}
	for in := bufio.NewReader(os.Stdin); ; {
		if _, err := os.Stdout.WriteString("READY\n"); err != nil {
			return err
		}
		header, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		_, size, _ := strings.Cut(strings.TrimSpace(header), " len:")
		n, err := strconv.Atoi(size)
		if err != nil {
			return fmt.Errorf("unexpected event %q", header)
		}
		if _, err := io.CopyN(io.Discard, in, int64(n)); err != nil {
			return err
		}
		if _, err := fifo.Write([]byte{1}); err != nil {
			return err
		}
		if _, err := os.Stdout.WriteString("RESULT 2\nOK"); err != nil {
			return err
		}
	}
}

// s6 runs each service below an s6-supervise of its own.
type s6 struct{ daemonPeer }

func openS6(_ context.Context, _ *bench, dir string) (peer, error) {
	p := &s6{daemonPeer{dir: dir, command: []string{"s6-svscan", dir + "/scan"}}}
	if err := os.Mkdir(dir+"/scan", 0o755); err != nil {
		return nil, err
	}
	return p, p.run()
}

func (p *s6) service(name string) string { return filepath.Join(p.dir, "scan", name) }

// start adds a service that is not started again once it has ended: its finish script requests that
// with 125.
func (p *s6) start(ctx context.Context, name string, command []string) error {
	made := filepath.Join(p.dir, name)
	err := os.Mkdir(made, 0o755)
	for file, text := range map[string]string{"run": "exec " + strings.Join(command, " "), "finish": "exit 125"} {
		if err == nil {
			err = os.WriteFile(filepath.Join(made, file), []byte("#!/bin/sh\n"+text+"\n"), 0o700) //nolint:gosec // a script
		}
	}
	if err == nil {
		err = os.Rename(made, p.service(name))
	}
	if err != nil {
		return err
	}
	for range 100 { // s6-svscan may not listen yet
		if err = run(ctx, "s6-svscanctl", "-a", p.dir+"/scan"); err == nil {
			break
		}
		if e := pause(ctx, 20*time.Millisecond); e != nil {
			return e
		}
	}
	return err
}

func (p *s6) expectEnd(ctx context.Context, name string) (func() error, error) {
	wait := exec.CommandContext(ctx, "s6-svwait", "-D", p.service(name))
	return wait.Wait, wait.Start()
}

func (p *s6) reported(ctx context.Context, name string) string {
	words := strings.Fields(outputOf(ctx, "s6-svstat", "-o", "up,exitcode,signal", p.service(name)))
	if len(words) != 3 {
		return "nothing"
	}
	return fmt.Sprintf("up %s, exitcode %s, signal %s", words[0], words[1], words[2])
}

func (p *s6) pid(ctx context.Context, name string) int {
	pid, _ := strconv.Atoi(outputOf(ctx, "s6-svstat", "-o", "pid", p.service(name)))
	return max(pid, 0)
}

func (p *s6) processes(context.Context) ([]int, error) {
	pids, err := processesNamed("s6-supervise")
	return append(pids, p.cmd.Process.Pid), err
}

func (p *s6) victims(_ context.Context, name string) []victim {
	return []victim{
		{"s6-svscan", p.kill, p.run},
		{"s6-supervise", func() error {
			pids, err := processesNamed("s6-supervise")
			for _, pid := range pids {
				if arguments, e := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); e == nil &&
					strings.HasSuffix(strings.TrimRight(string(arguments), "\x00"), name) {
					return unix.Kill(pid, unix.SIGKILL)
				}
			}
			return errors.Join(err, fmt.Errorf("no s6-supervise for %q", name))
		}, func() error { return nil }},
	}
}
