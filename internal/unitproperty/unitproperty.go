// Package unitproperty reads unit properties as people write them, NAME=VALUE in the words of the
// unit files, into what systemd's bus interface takes, and keeps them as text.
package unitproperty

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/internal/config"
)

// unitProperties are the properties of a scope that -p takes, in the words of the unit files, each
// with how systemd's StartTransientUnit wants it: under which name, of which type. The bus does not
// tell these types, so they stand here, as they do in systemd-run.
var unitProperties = map[string]func(name, value string) (string, any, error){
	"MemoryMin": memory, "MemoryLow": memory, "MemoryHigh": memory, "MemoryMax": memory, "MemorySwapMax": memory, "MemoryZSwapMax": memory,
	"TasksMax":  tasks,
	"CPUQuota":  cpuQuota,
	"CPUWeight": weight, "StartupCPUWeight": weight, "IOWeight": weight, "StartupIOWeight": weight,
	"AllowedCPUs": cpuSet, "AllowedMemoryNodes": cpuSet,
	"CPUQuotaPeriodSec": timeSpan, "RuntimeMaxSec": timeSpan, "TimeoutStopSec": timeSpan, "RuntimeRandomizedExtraSec": timeSpan,
	"OOMPolicy":      oneOf("stop", "continue", "kill"),
	"ManagedOOMSwap": oneOf("auto", "kill"), "ManagedOOMMemoryPressure": oneOf("auto", "kill"),
	"ManagedOOMPreference": oneOf("none", "avoid", "omit"),
	"DevicePolicy":         oneOf("auto", "closed", "strict"),
	"Slice":                words,
	"CPUAccounting":        boolean, "MemoryAccounting": boolean, "TasksAccounting": boolean, "IOAccounting": boolean,
	"Delegate": boolean, "SendSIGHUP": boolean, "SendSIGKILL": boolean,
}

// SameLimit tells whether two properties are one limit, of which the later one counts: MemoryMax,
// in bytes, and MemoryMaxScale, a share of what the machine has.
func SameLimit(a, b string) bool {
	return strings.TrimSuffix(a, "Scale") == strings.TrimSuffix(b, "Scale")
}

// Parse reads NAME=VALUE and returns the property by its name and type on the bus: MemoryMax=1G is
// MemoryMax t, RuntimeMaxSec=1h is RuntimeMaxUSec t.
func Parse(text string) (string, dbus.Variant, error) {
	name, value, ok := strings.Cut(text, "=")
	if !ok || name == "" {
		return "", dbus.Variant{}, fmt.Errorf("%q is not NAME=VALUE", text)
	}
	parse, ok := unitProperties[name]
	if !ok {
		known := strings.Join(Names(), " ")
		return "", dbus.Variant{}, fmt.Errorf("unknown unit property %q; known are: %s", name, known)
	}
	onBus, v, err := parse(name, strings.TrimSpace(value))
	if err != nil {
		return "", dbus.Variant{}, fmt.Errorf("unit property %s: %w", name, err)
	}
	return onBus, dbus.MakeVariant(v), nil
}

// Names returns the names that Parse knows, sorted.
func Names() []string { return slices.Sorted(maps.Keys(unitProperties)) }

// Encode returns a property's value as text that Decode reads, with its D-Bus signature: a form
// that can be saved. It is text that a person can read where godbus can read that too. The error is
// that of a type which no unit property has.
func Encode(v dbus.Variant) (signature, text string, err error) {
	signature, text = v.Signature().String(), v.String()
	if back, err := Decode(signature, text); err == nil && reflect.DeepEqual(back, v) {
		return signature, text, nil
	}
	text, err = encodeWire(v)
	return signature, text, err
}

// Decode reads what Encode returned.
func Decode(signature, text string) (v dbus.Variant, err error) {
	defer func() {
		if p := recover(); p != nil { // godbus (5.2) panics on a text that is of another type than its signature, such as [] for b
			v, err = dbus.Variant{}, fmt.Errorf("cannot read a property's value: its type is not %q", signature)
		}
	}()
	if wire, ok := strings.CutPrefix(text, wirePrefix); ok {
		if v, err = decodeWire(wire, signature); err != nil {
			return dbus.Variant{}, fmt.Errorf("cannot read a property's value: %w", err)
		}
		return v, nil
	}
	sig, err := dbus.ParseSignature(signature)
	if err != nil {
		return dbus.Variant{}, fmt.Errorf("cannot read a property of type %q: %w", signature, err)
	}
	v, err = dbus.ParseVariant(text, sig)
	if err != nil {
		return dbus.Variant{}, fmt.Errorf("cannot read a property's value: %w", err)
	}
	return v, nil
}

func memory(name, value string) (string, any, error) {
	if strings.HasSuffix(value, "%") {
		return scale(name, value)
	}
	n, err := parseSize(value)
	if err != nil {
		return "", nil, err
	}
	return name, n, nil
}

func tasks(name, value string) (string, any, error) {
	if strings.HasSuffix(value, "%") {
		return scale(name, value)
	}
	if value == "infinity" {
		return name, uint64(math.MaxUint64), nil
	}
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil || n == 0 {
		return "", nil, fmt.Errorf("invalid value %q: expected a number of tasks, a percentage or infinity", value)
	}
	return name, n, nil
}

// scale is for a share of what the machine has: NAMEScale, a share of 2^32.
func scale(name, value string) (string, any, error) {
	percent, err := parsePercent(value)
	if err != nil || percent > 100 {
		return "", nil, fmt.Errorf("invalid value %q: expected a percentage up to 100", value)
	}
	return name + "Scale", uint32(math.Round(percent / 100 * math.MaxUint32)), nil
}

// cpuQuota is for a share of one processor, which may be above 100 %: processor time in a second.
func cpuQuota(_, value string) (string, any, error) {
	const name = "CPUQuotaPerSecUSec"
	if value == "" || value == "infinity" {
		return name, uint64(math.MaxUint64), nil
	}
	percent, err := parsePercent(value)
	if err != nil || percent <= 0 || percent > 1e9 {
		return "", nil, fmt.Errorf("invalid value %q: expected a percentage above 0, such as 20%%", value)
	}
	return name, uint64(math.Round(percent * 10_000)), nil
}

func weight(name, value string) (string, any, error) {
	if value == "idle" && strings.HasSuffix(name, "CPUWeight") {
		return name, uint64(0), nil // CGROUP_WEIGHT_IDLE
	}
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil || n < 1 || n > 10_000 {
		return "", nil, fmt.Errorf("invalid value %q: expected a weight from 1 to 10000", value)
	}
	return name, n, nil
}

// timeSpan is for NAMESec in unit files, which is NAMEUSec on the bus.
func timeSpan(name, value string) (string, any, error) {
	span, err := config.ParseTimeSpan(value)
	if err != nil {
		return "", nil, err
	}
	usec := uint64(math.MaxUint64)
	if span != config.Infinity {
		usec = uint64(span / time.Microsecond)
	}
	return strings.TrimSuffix(name, "Sec") + "USec", usec, nil
}

// cpuSet is for a list such as "0-3,5": a bit for each, the lowest first.
func cpuSet(name, value string) (string, any, error) {
	var bits []byte
	for _, part := range strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' }) {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err1 := strconv.ParseUint(first, 10, 12)
		to, err2 := strconv.ParseUint(last, 10, 12)
		if err1 != nil || err2 != nil || from > to {
			return "", nil, fmt.Errorf("invalid value %q: expected a list such as 0-3,5", value)
		}
		for cpu := from; cpu <= to; cpu++ {
			for uint64(len(bits)) <= cpu/8 {
				bits = append(bits, 0)
			}
			bits[cpu/8] |= 1 << (cpu % 8)
		}
	}
	if bits == nil {
		return "", nil, fmt.Errorf("invalid value %q: expected a list such as 0-3,5", value)
	}
	return name, bits, nil
}

func boolean(name, value string) (string, any, error) {
	switch strings.ToLower(value) {
	case "1", "yes", "y", "true", "t", "on":
		return name, true, nil
	case "0", "no", "n", "false", "f", "off":
		return name, false, nil
	}
	return "", nil, fmt.Errorf("invalid value %q: expected yes or no", value)
}

func words(name, value string) (string, any, error) {
	if value == "" {
		return "", nil, fmt.Errorf("the value is empty")
	}
	return name, value, nil
}

func oneOf(values ...string) func(name, value string) (string, any, error) {
	return func(name, value string) (string, any, error) {
		if !slices.Contains(values, value) {
			return "", nil, fmt.Errorf("%q is none of %s", value, strings.Join(values, ", "))
		}
		return name, value, nil
	}
}

func parsePercent(text string) (float64, error) {
	number, ok := strings.CutSuffix(text, "%")
	if !ok {
		return 0, fmt.Errorf("invalid value %q: expected a percentage", text)
	}
	percent, err := strconv.ParseFloat(number, 64)
	if err != nil || math.IsNaN(percent) || percent < 0 {
		return 0, fmt.Errorf("invalid value %q: expected a percentage", text)
	}
	return percent, nil
}

// parseSize reads bytes, or "infinity".
func parseSize(text string) (uint64, error) {
	if text == "infinity" {
		return math.MaxUint64, nil
	}
	if n, err := strconv.ParseUint(text, 10, 64); err == nil { // systemd's own infinity is one that ParseBytes has no room for
		return n, nil
	}
	n, err := config.ParseBytes(text)
	return uint64(n), err
}
