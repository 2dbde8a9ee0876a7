package machine

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/testbed/claim"
)

// Network connects machines with each other and with nothing else. Each of them finds the others by
// name in /etc/hosts. Its bridge is in a network namespace of its own, which vanishes with the
// test, even if that is killed.
type Network struct {
	t      T
	claim  *claim.Claim // its directory contains the hosts file
	bridge *exec.Cmd    // keeps the namespace

	mu      sync.Mutex
	members int
}

// maxMembers limits the number of machines in a network: the last part of an address is one digit.
const maxMembers = 9

// NewNetwork creates a network without machines. It is removed after the test.
func NewNetwork(t T) *Network {
	t.Helper()
	n := &Network{t: t}
	if err := n.create(); err != nil {
		t.Fatalf("cannot make a network: %v", err)
	}
	return n
}

func (n *Network) create() error {
	if err := needRoot(); err != nil {
		return err
	}
	var err error
	if n.claim, err = claim.New(); err != nil {
		return err
	}
	n.t.Cleanup(n.destroy)
	if err := os.WriteFile(n.hosts(), []byte("127.0.0.1 localhost\n"), 0o644); err != nil {
		return err
	}
	n.bridge = exec.Command("sh", "-ec", "ip link add lan type bridge; ip link set lan up; echo; exec sleep infinity")
	if err := startKeeper(n.bridge, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("cannot make its bridge with ip(8) of iproute2: %w", err)
	}
	return nil
}

func (n *Network) destroy() {
	if n.bridge != nil && n.bridge.Process != nil {
		_ = n.bridge.Process.Kill()
	}
	if err := n.claim.Release(); err != nil {
		n.t.Logf("network: %v", err)
	}
}

// hosts returns the path of the file that all machines of the network have as /etc/hosts.
func (n *Network) hosts() string { return filepath.Join(n.claim.Dir, "hosts") }

// namespace returns the path of the bridge's network namespace.
func (n *Network) namespace() string { return fmt.Sprintf("/proc/%d/ns/net", n.bridge.Process.Pid) }

// join returns the number of a new member, the last part of its address, and makes its name known
// to all members.
func (n *Network) join(name string) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if name == "" {
		return 0, fmt.Errorf("it needs a name in its network")
	}
	if n.members == maxMembers {
		return 0, fmt.Errorf("its network has %d machines already", n.members)
	}
	n.members++
	hosts, err := os.OpenFile(n.hosts(), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = hosts.Close() }()
	_, err = fmt.Fprintf(hosts, "10.0.0.%d %s\n", n.members, name)
	return n.members, err
}

// ip runs ip(8) in the bridge's network namespace.
func (n *Network) ip(args ...string) error {
	cmd := exec.Command("nsenter", append([]string{"--net=" + n.namespace(), "--", "ip"}, args...)...)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, output)
	}
	return nil
}

// connectScript is the part of the boot script that connects a machine to its network. The
// arguments are its name, the network's namespace, its number, `master lan` or, for a machine that
// is cut off, `nomaster`, and the hosts file. The hardware addresses of all members are known in
// advance: packets to one that is cut off or switched off are lost, where an unanswered ARP request
// would be an error ("no route to host"), which a peer behind a router never sees.
const connectScript = `
echo "$4" >etc/hostname
: >>etc/hosts
mount --bind "$8" etc/hosts
ip link add eth0 address "02:00:00:00:00:0$6" type veth peer name "$4" netns "$5"
ip address add "10.0.0.$6/24" dev eth0
ip link set eth0 up
for member in 1 2 3 4 5 6 7 8 9; do
	ip neighbour add "10.0.0.$member" lladdr "02:00:00:00:00:0$member" dev eth0 nud permanent
done
nsenter --net="$5" ip link set "$4" up $7
`

// Disconnect cuts the machine off its network: from now on, all packets from and to it are lost,
// and nobody is notified of it. It stays cut off across boots, until Connect.
func (m *Machine) Disconnect() {
	m.t.Helper()
	m.attachPort("nomaster")
}

// Connect reverses Disconnect.
func (m *Machine) Connect() {
	m.t.Helper()
	m.attachPort("master", "lan")
}

func (m *Machine) attachPort(to ...string) {
	m.t.Helper()
	if m.network == nil {
		m.t.Fatalf("the machine has no network")
	}
	m.port = to
	if m.init == nil {
		return // the next Boot makes it
	}
	if err := m.network.ip(append([]string{"link", "set", m.name}, to...)...); err != nil {
		m.t.Fatalf("cannot set the port of machine %q to %q: %v", m.name, to, err)
	}
}

// unplug removes the interface of the machine, if it has one.
func (m *Machine) unplug() {
	if m.network != nil {
		_ = m.network.ip("link", "delete", m.name) // the kernel removes it as well, once the last process has died
	}
}
