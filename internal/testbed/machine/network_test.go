//go:build e2e

package machine_test

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed/machine"
)

// echo installs a service that greets a client and sends back what it receives.
const echo = `cd /etc/systemd/system
printf '[Socket]\nListenStream=7\nAccept=yes\n' >echo.socket
printf '[Service]\nStandardInput=socket\nExecStart=sh -c "echo here is $(hostname); exec cat"\n' >echo@.service
systemctl add-wants machine.target echo.socket
systemctl start echo.socket`

// reach prints the first line of that service of another machine.
const reach = `exec 3<>"/dev/tcp/$1/7" && head -n 1 <&3`

func TestNetwork_ConnectsMachines(t *testing.T) {
	t.Parallel()
	network := machine.NewNetwork(t)
	files := t.TempDir()
	desk := machine.Boot(t, machine.Options{Network: network, Name: "desk", Share: files})
	gpu := machine.Boot(t, machine.Options{Network: network, Name: "gpu", Share: files})
	first := func(timeout string) (string, int) {
		cmd := desk.Command("root", "timeout", timeout, "bash", "-c", reach, "bash", "gpu")
		output, _ := cmd.CombinedOutput()
		return string(output), cmd.ProcessState.ExitCode()
	}
	reaches := func(when string) {
		t.Helper()
		output, code := first("20")
		assert.Equal(t, "here is gpu\n", output, when)
		assert.Zero(t, code, when)
	}
	isLost := func(when, timeout string) {
		t.Helper()
		output, code := first(timeout)
		assert.Equal(t, 124, code, "a connection is neither made nor refused %s: %s", when, output)
	}

	assert.Equal(t, "desk\n", desk.Run("hostname"))
	gpu.Run("sh", "-ec", echo)
	reaches("at first")
	desk.Run("sh", "-c", "echo shared >/srv/file")
	assert.Equal(t, "shared\n", gpu.Run("cat", "/srv/file"))

	// An open connection survives that one of its ends has been cut off.
	talk := desk.Command("root", "bash", "-c", `exec 3<>/dev/tcp/gpu/7 4<&0; cat <&4 >&3 & exec cat <&3`)
	input, err := talk.StdinPipe()
	require.NoError(t, err)
	output, err := talk.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, talk.Start())
	lines := bufio.NewReader(output)
	line, err := lines.ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "here is gpu\n", line)
	gpu.Disconnect()
	_, err = fmt.Fprintln(input, "sent meanwhile")
	require.NoError(t, err)
	isLost("while it is cut off", "4") // an unanswered ARP request would be an error after three seconds
	gpu.Connect()
	line, err = lines.ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "sent meanwhile\n", line)

	gpu.Crash()
	isLost("after a power loss", "0.5")
	_, err = fmt.Fprintln(input, "to a machine that knows no such connection")
	require.NoError(t, err)
	gpu.Boot()
	reaches("after a power loss and a boot")
	_, err = lines.ReadString('\n')
	require.Error(t, err, "the machine has reset the connection")
	_ = input.Close()
	_ = talk.Wait()

	gpu.PowerOff()
	gpu.Disconnect()
	gpu.Boot()
	isLost("after the boot of a machine that is cut off", "0.5")
	gpu.Connect()
	reaches("once it is connected")
	assert.Equal(t, "gpu\n", gpu.Run("hostname"))
}

// TestNetwork_IsSeparate: names and addresses of a network are those of its own machines, and the
// host has no part in it.
func TestNetwork_IsSeparate(t *testing.T) {
	t.Parallel()
	one := machine.Boot(t, machine.Options{Network: machine.NewNetwork(t), Name: "one"})
	two := machine.Boot(t, machine.Options{Network: machine.NewNetwork(t), Name: "two"})
	assert.Equal(t, "10.0.0.1", strings.Fields(one.Run("getent", "hosts", "one"))[0])
	assert.Equal(t, "10.0.0.1", strings.Fields(two.Run("getent", "hosts", "two"))[0])
	assert.NotZero(t, status(one, "root", "timeout", "20", "getent", "hosts", "two"))
	interfaces, err := os.ReadDir("/sys/class/net")
	require.NoError(t, err)
	for _, each := range interfaces {
		assert.NotContains(t, []string{"lan", "one", "two"}, each.Name(), "on the host")
	}
}
