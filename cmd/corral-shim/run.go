package main

import (
	"bytes"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/clock"
	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/internal/safefile"
	"github.com/corrald/corral/internal/shimwire"
)

// exitBroken is the shim's exit code if it cannot do its work at all. An agent can exit with it
// too: exit_status tells them apart.
const exitBroken = 125

// defaultIdleAfter is for a spec that does not say when an agent is idle.
const defaultIdleAfter = 3 * time.Second

// shim is one run of an agent.
type shim struct {
	spec     shimwire.Spec
	bootID   string
	record   record
	log      *outputLog
	memory   memoryCounters
	listener listener
	poller   *poller
	timers   *timers
	signals  *signals

	inner          innerTerminal
	masterReadable bool
	masterWritable bool
	pane           pane
	agent          agent
	ended          bool // the agent

	out        output
	scanner    scanner
	input      inputQueue
	typed      time.Time // when somebody has typed something last, zero if nobody has
	prompt     prompt
	idle       bool
	rested     bool      // it has been idle before
	since      time.Time // when it became idle, or working
	lastOutput time.Time
	paneClosed bool // by hand, and the agent was told so

	notifier   notifier
	ready      time.Time // when the agent has said that it is
	rang       time.Time // its bell, last
	said       [saidCount]said
	status     programStatus
	titles     titles
	setup      *setup // nil if there is nothing to look for, any more
	notice     notice
	rings      string    // the text of the notification that rings
	seq        uint32    // of the last word, and of the last change between silence and output
	saidActive uint32    // the latter's
	sayNext    time.Time // when the words that were told would be told if each had to wait for the one before it

	conns    [maxConns]*conn
	group    []byte     // the control group that the shim was started in
	room     [4096]byte // for the control group of who connects
	incoming receiver
	outgoing [4 << 10]byte
}

// runAgent runs what the file at path describes and returns the code to exit with.
func runAgent(path string) int {
	runtime.GOMAXPROCS(1) // or each goroutine that the start begins would make another thread, which costs memory for ever
	unblockSignals()
	defaultLibrarySignals()
	spec, err := readSpec(path)
	if err != nil {
		complain("cannot read the spec: " + err.Error())
		return exitBroken
	}
	if spec.IdleAfter <= 0 {
		spec.IdleAfter = defaultIdleAfter
	}
	s := &shim{spec: spec, bootID: bootID(), masterWritable: true}
	s.scanner.init(s.command, s.forgetStatus)
	if s.record, err = prepareRecord(&spec); err != nil {
		complain("cannot prepare the exit status: " + err.Error())
		return exitBroken
	}
	if err := s.prepare(); err != nil {
		return s.notStarted(&startError{"cannot prepare a terminal for the command: " + err.Error(), exitBroken})
	}
	if err := s.start(); err != nil {
		return s.notStarted(err)
	}
	s.loop()
	return s.finish()
}

// readSpec reads the file and removes it: nobody else has to see what is in it.
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

func bootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return string(bytes.TrimSpace(b))
}

// prepare gets everything that the shim needs while the agent runs.
func (s *shim) prepare() error {
	_ = unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC) // whatever was left open for us is not for the agent
	var err error
	if s.signals, err = catchSignals(); err != nil {
		return err
	}
	if s.log, err = openLog(s.spec.StateDir, s.spec.LogMax); err != nil {
		return err
	}
	if text, err := os.ReadFile("/proc/self/cgroup"); err == nil {
		s.group = ownCgroup(text)
	}
	s.memory = openMemoryCounters()
	s.pane = openPane(0)
	mode := s.pane.mode
	if !s.pane.there() {
		mode = sane()
	} else {
		s.pane.server = findServer(os.Getenv("TMUX"))
	}
	size := s.pane.size()
	if s.inner, err = openInner(mode, size); err != nil {
		return err
	}
	s.log.sizes.is(size)
	if s.listener, err = listen(s.spec.Socket); err != nil {
		return err
	}
	if s.spec.Notify != "" {
		if s.notifier, err = listenNotify(s.spec.Notify); err != nil {
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
	for about, fd := range map[int]int{
		aboutMaster: s.inner.master, aboutTimer: s.timers.fd, aboutSignal: s.signals.heard, aboutListener: s.listener.fd,
	} {
		if err := s.poller.add(fd, about); err != nil {
			return err
		}
	}
	if s.notifier.fd > 0 {
		if err := s.poller.add(s.notifier.fd, aboutNotify); err != nil {
			return err
		}
	}
	s.watchPane()
	return settle()
}

// watchPane makes the pane's terminal and its tmux server sources of events.
func (s *shim) watchPane() {
	if !s.pane.there() {
		return
	}
	_ = s.poller.add(s.pane.fd, aboutPane)
	if s.pane.server.pidfd > 0 {
		_ = s.poller.add(s.pane.server.pidfd, aboutServer)
	}
	s.pane.makeRaw()
	s.pane.readable, s.pane.writable = true, true
}

// start executes the agent and then lets others find the socket.
func (s *shim) start() error {
	slave, err := s.inner.openSlave(0)
	if err != nil {
		return &startError{"cannot prepare a terminal for the command: " + err.Error(), exitBroken}
	}
	s.agent, err = startAgent(&s.spec, slave)
	_ = unix.Close(slave)
	if err != nil {
		return err
	}
	s.since = s.agent.started
	s.lastOutput = s.agent.started
	s.timers.set(timerIdle, s.since.Add(s.spec.IdleAfter))
	if err := s.poller.add(s.agent.pidfd, aboutAgent); err != nil {
		complain("cannot watch the agent: " + err.Error())
	}
	if err := s.listener.publish(); err != nil {
		complain("cannot publish the socket: " + err.Error())
	}
	s.titles = newTitles(&s.spec)
	s.watchSetup()
	s.takePrompt()
	s.spec.Env, s.spec.Args = nil, nil
	return nil
}

// notStarted records that the agent could not be started, shows it in the pane, and returns the
// code to exit with.
func (s *shim) notStarted(err error) int {
	code := exitBroken
	if e, ok := err.(*startError); ok { //nolint:errorlint // it is made here and never wrapped
		code = e.code
	}
	s.removeSocket()
	now := time.Now()
	s.insist(exitstatus.Status{
		RunID: s.spec.RunID, BootID: s.bootID, Code: exitstatus.NotStarted, Error: err.Error(), Started: now, Exited: now, ExitedMonotonic: clock.Monotonic(),
	})
	if s.pane.there() {
		s.pane.makeRaw()
	}
	_, _ = os.Stderr.WriteString(strings.ToValidUTF8(err.Error(), "?") + "\r\n")
	if s.pane.there() {
		s.pane.awaitRead(time.Now().Add(showTime))
	}
	s.pane.release()
	return code
}

func (s *shim) removeSocket() {
	if s.listener.fd > 0 {
		s.listener.remove()
	}
	s.notifier.remove()
}

// finish records how the agent ended, and only then does what may take time: showing the rest in
// the pane.
func (s *shim) finish() int {
	noticed := s.noticing()
	status := s.reap()
	for fresh := s.readOut(); len(fresh) > 0; fresh = s.readOut() {
		s.keep(fresh)
	}
	s.out.release(s.scanner.cut.going)
	s.removeSocket()
	status.SIGTERMMonotonic = s.told(noticed, status.ExitedMonotonic)
	s.insist(status)
	s.input.refuse(s.send, "the agent has ended")
	s.showRest()
	s.showEnd(status)
	code := status.Value
	if status.Code != exitstatus.Exited {
		code += 128
	}
	s.send(s.pane.joined, shimwire.Message{Kind: shimwire.Ended, Seq: uint32(code)})
	s.pane.release()
	return code
}

// reap takes the agent's status from the kernel. It has ended already.
func (s *shim) reap() exitstatus.Status {
	var ws unix.WaitStatus
	var usage unix.Rusage
	for {
		if _, err := unix.Wait4(s.agent.pid, &ws, 0, &usage); err != unix.EINTR {
			break
		}
	}
	exited := clock.Monotonic()
	status := exitstatus.Status{
		RunID: s.spec.RunID, BootID: s.bootID, PID: s.agent.pid, Code: exitstatus.Exited, Value: ws.ExitStatus(),
		Started: s.agent.started, Exited: time.Now(), ExitedMonotonic: exited,
		UserTime: time.Duration(usage.Utime.Nano()), SystemTime: time.Duration(usage.Stime.Nano()), MaxRSS: usage.Maxrss << 10,
		OOMKills: s.memory.kills(), MemoryMax: s.memory.max(), PaneClosed: s.paneClosed,
		Prompted: s.prompt.given,
	}
	if ws.Signaled() {
		status.Code, status.Value = exitstatus.Killed, int(ws.Signal())
		if ws.CoreDump() {
			status.Code = exitstatus.Dumped
		}
	}
	return status
}
