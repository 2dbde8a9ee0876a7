package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/clock"
	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/program"
	"github.com/corrald/corral/internal/safefile"
	"github.com/corrald/corral/internal/shimwire"
)

// exitFailure is the shim's exit code if it cannot run the agent at all. An agent can exit with the
// same code; exit_status distinguishes the two.
const exitFailure = 125

// defaultIdleAfter applies if the spec has no IdleAfter.
const defaultIdleAfter = 3 * time.Second

// shim is the state of one run of an agent.
type shim struct {
	spec       shimwire.Spec
	bootID     string
	exitRecord exitRecord
	log        *outputLog
	scope      cgroupFiles
	listener   listener
	poller     *poller
	timers     *timers
	signals    *signals

	inner          innerTerminal
	masterReadable bool
	masterWritable bool
	pane           pane
	agent          agent
	guard          guard
	agentEnded     bool
	scopeEnds      bool // the daemon ends the scope once the agent has exited

	out           output
	scanner       scanner
	input         inputQueue
	lastTyped     time.Time // when somebody last typed or sent input; zero if nobody has
	typedSent     bool      // a Typed was sent since the last report
	prompt        prompt
	idle          bool
	wasIdle       bool      // the agent was idle at least once
	activitySince time.Time // when the agent became idle or working
	lastOutput    time.Time
	paneClosed    bool // the user closed the pane, and the agent got SIGHUP

	notifier      notifier
	readyAt       time.Time // when the agent sent READY=1
	lastBell      time.Time // when the bell last rang
	reports       [sourceCount]report
	programStatus programStatus
	background    *regexp.Regexp // nil if no OSC 7501 message shows that a turn has ended
	titleStatus   titleStatus
	screenStatus  *screenStatus // nil if the definition has no pattern that applies
	kitty         kittyNotification
	bellText      string // text of the terminal notification in the output that is being processed
	lastSeq       uint32 // of the last report, or change of activity
	activitySeq   uint32 // of the last change of activity

	// When the reports sent so far would all have been sent if each had waited reportInterval for the
	// one before it.
	nextReportAt time.Time

	conns        [maxConns]*conn
	cgroup       []byte     // the control group in which the shim was started
	cgroupBuffer [4096]byte // for reading the control group of a process that connects
	incoming     receiver
	outgoing     [4 << 10]byte
}

// runAgent runs the agent that the file at path describes and returns the shim's exit code.
func runAgent(path string) int {
	// With a higher value, the goroutines of the start would create threads, whose memory is never
	// freed.
	runtime.GOMAXPROCS(1)
	unblockSignals()
	defaultLibrarySignals()
	spec, err := readSpec(path)
	if err != nil {
		printError("cannot read the spec: " + err.Error())
		return exitFailure
	}
	if spec.IdleAfter <= 0 {
		spec.IdleAfter = defaultIdleAfter
	}
	s := &shim{spec: spec, masterWritable: true, pane: pane{fd: -1}}
	s.bootID, _ = proc.BootID()
	s.scanner.init(s.handleOSC, s.resetProgramStatus)
	if s.exitRecord, err = prepareExitRecord(&spec); err != nil {
		printError("cannot prepare the exit status: " + err.Error())
		return exitFailure
	}
	if err := s.prepare(); err != nil {
		return s.notStarted(fmt.Errorf("cannot prepare a terminal for the command: %w", err))
	}
	if err := s.start(); err != nil {
		return s.notStarted(err)
	}
	s.loop()
	return s.finish()
}

// readSpec reads the spec file and removes it, so that its content is not exposed any longer.
func readSpec(path string) (shimwire.Spec, error) {
	b, err := safefile.Read(path, shimwire.MaxSpec)
	if err != nil {
		return shimwire.Spec{}, err
	}
	if err := os.Remove(path); err != nil {
		return shimwire.Spec{}, err
	}
	return shimwire.ParseSpec(b)
}

// prepare allocates everything that the shim needs while the agent runs.
func (s *shim) prepare() error {
	// The agent must not inherit descriptors that the shim has inherited.
	_ = unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
	var err error
	if s.signals, err = catchSignals(); err != nil {
		return err
	}
	if s.log, err = openLog(s.spec.StateDir, s.spec.LogMax); err != nil {
		return err
	}
	group, _ := proc.Cgroup(os.Getpid())
	s.cgroup, s.scope = []byte(group), openCgroupFiles(group)
	s.pane = openPane(0)
	mode := s.pane.mode
	if !s.pane.isOpen() {
		mode = saneSettings()
	} else {
		s.pane.server = findServer(os.Getenv("TMUX"))
	}
	size := s.pane.size()
	if s.inner, err = openInner(mode, size); err != nil {
		return err
	}
	s.log.sizes.setSize(size)
	if s.listener, err = listen(s.spec.Socket); err != nil {
		return err
	}
	if s.spec.Notify != "" {
		if s.notifier, err = listenNotify(s.spec.Notify, s.cgroup); err != nil {
			return err
		}
		s.spec.Env = s.notifier.environment(s.spec.Env)
	}
	if s.timers, err = newTimers(); err != nil {
		return err
	}
	if s.poller, err = newPoller(); err != nil {
		return err
	}
	for source, fd := range map[int]int{
		eventMaster: s.inner.master, eventTimer: s.timers.fd,
		eventSignal: s.signals.eventfd, eventListener: s.listener.fd,
	} {
		if err := s.poller.add(fd, source); err != nil {
			return err
		}
	}
	if s.notifier.fd > 0 {
		if err := s.poller.add(s.notifier.fd, eventNotify); err != nil {
			return err
		}
	}
	if err := s.watchForbidden(); err != nil {
		return err
	}
	s.watchPane()
	return preallocate()
}

// watchPane adds the pane's terminal and its tmux server to the epoll set.
func (s *shim) watchPane() {
	if !s.pane.isOpen() {
		return
	}
	_ = s.poller.add(s.pane.fd, eventPane)
	if s.pane.server.pidfd > 0 {
		_ = s.poller.add(s.pane.server.pidfd, eventServer)
	}
	s.pane.makeRaw()
	s.pane.readable, s.pane.writable = true, true
}

// start executes the agent and then publishes the socket.
func (s *shim) start() error {
	slave, err := s.inner.openSlave(0)
	if err != nil {
		return fmt.Errorf("cannot prepare a terminal for the command: %w", err)
	}
	s.agent, err = startAgent(&s.spec, slave)
	_ = unix.Close(slave)
	if err != nil {
		return err
	}
	if s.guard.fd > 0 {
		s.guard.confined = s.agent.confined
		s.guard.check(s.incoming.data[:]) // the agent may have been faster
	}
	s.activitySince = s.agent.started
	s.lastOutput = s.agent.started
	s.timers.set(timerIdle, s.activitySince.Add(s.spec.IdleAfter))
	if err := s.poller.add(s.agent.pidfd, eventAgent); err != nil {
		printError("cannot watch the agent: " + err.Error())
	}
	if err := s.listener.publish(); err != nil {
		printError("cannot publish the socket: " + err.Error())
	}
	s.titleStatus = newTitleStatus(&s.spec)
	s.background = compilePattern(s.spec.BackgroundPattern)
	s.watchScreen()
	s.preparePrompt()
	s.spec.Env, s.spec.Args = nil, nil
	return nil
}

// notStarted records that the agent could not be started, prints the error in the pane, and returns
// the shim's exit code.
func (s *shim) notStarted(err error) int {
	code := exitFailure
	if e := (*program.Error)(nil); errors.As(err, &e) {
		code = e.Code
	}
	s.removeSocket()
	now := time.Now()
	s.writeRecord(exitstatus.Status{
		RunID: s.spec.RunID, BootID: s.bootID, Code: exitstatus.NotStarted, Error: err.Error(),
		Started: now, Exited: now, ExitedMonotonic: clock.Monotonic(),
	})
	s.pane.makeRaw()
	_, _ = os.Stderr.WriteString(strings.ToValidUTF8(err.Error(), "?") + "\r\n")
	s.pane.awaitTmux(time.Now().Add(drainTimeout))
	s.pane.release()
	return code
}

func (s *shim) removeSocket() {
	if s.listener.fd > 0 {
		s.listener.remove()
	}
	s.notifier.remove()
}

// finish records how the agent ended and returns the shim's exit code. What may take time, showing
// the rest of the output in the pane, follows after the record was written.
func (s *shim) finish() int {
	delivered := s.sigtermDelivery()
	status := s.reap()
	for fresh := s.readOutput(); len(fresh) > 0; fresh = s.readOutput() {
		s.processOutput(fresh)
	}
	s.out.flushHeld(s.scanner.filter.isRemoving)
	s.removeSocket()
	status.SIGTERMMonotonic = s.sigtermTime(delivered, status.ExitedMonotonic)
	s.writeRecord(status)
	for len(s.input.texts) > 0 {
		s.finishText(s.input.texts[0], "the agent has ended")
	}
	s.drainPane()
	s.showExitLine(status)
	code := status.Value
	if status.Code != exitstatus.Exited {
		code += 128
	}
	s.send(s.pane.joined, shimwire.Message{Kind: shimwire.Ended, Seq: uint32(code)})
	s.pane.release()
	return code
}

// reap gets the agent's exit status from the kernel. The agent has already exited.
func (s *shim) reap() exitstatus.Status {
	ws, usage := s.agent.wait()
	s.guard.violated = s.guard.remove() || s.guard.violated
	exited := clock.Monotonic()
	status := exitstatus.Status{
		RunID: s.spec.RunID, BootID: s.bootID, PID: s.agent.pid, Code: exitstatus.Exited, Value: ws.ExitStatus(),
		Started: s.agent.started, Exited: time.Now(), ExitedMonotonic: exited,
		UserTime: time.Duration(usage.Utime.Nano()), SystemTime: time.Duration(usage.Stime.Nano()),
		MaxRSS: usage.Maxrss << 10, OOMKills: s.scope.kills(), MemoryMax: s.scope.max(),
		PaneClosed: s.paneClosed, Prompted: s.prompt.isQueued,
	}
	if ws.Signaled() {
		status.Code, status.Value = exitstatus.Killed, int(ws.Signal())
		if ws.CoreDump() {
			status.Code = exitstatus.Dumped
		}
	}
	if s.guard.violated {
		status.Code, status.Value, status.Error = exitstatus.Killed, int(unix.SIGKILL), s.guard.violation()
	}
	return status
}

// wait waits for the end of the agent.
func (a *agent) wait() (unix.WaitStatus, unix.Rusage) {
	if a.sandbox > 0 {
		return a.waitConfined()
	}
	return waitChild(a.pid)
}

// waitChild waits for the end of a child process, and reaps it.
func waitChild(pid int) (ws unix.WaitStatus, usage unix.Rusage) {
	for {
		if _, e := unix.Wait4(pid, &ws, 0, &usage); e != unix.EINTR {
			return ws, usage
		}
	}
}
