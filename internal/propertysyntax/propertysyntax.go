// Package propertysyntax converts unit properties between the syntax of unit files, NAME=VALUE, the
// types of systemd's D-Bus interface, and a text form for session records.
package propertysyntax

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

// unitProperties are the scope properties that -p accepts, by their names in unit files, with
// parsers that return the name and the type that StartTransientUnit expects. D-Bus introspection
// does not provide these types, so they are listed here, as in systemd-run.
var unitProperties = map[string]func(name, value string) (string, any, error){
	"MemoryMin": memory, "MemoryLow": memory, "MemoryHigh": memory, "MemoryMax": memory, "MemorySwapMax": memory,
	"MemoryZSwapMax": memory,
	"TasksMax":       tasks,
	"CPUQuota":       cpuQuota,
	"CPUWeight":      weight, "StartupCPUWeight": weight, "IOWeight": weight, "StartupIOWeight": weight,
	"AllowedCPUs": cpuSet, "AllowedMemoryNodes": cpuSet,
	"CPUQuotaPeriodSec": timeSpan, "RuntimeMaxSec": timeSpan, "TimeoutStopSec": timeSpan,
	"RuntimeRandomizedExtraSec": timeSpan,
	"OOMPolicy":                 oneOf("stop", "continue", "kill"),
	"ManagedOOMSwap":            oneOf("auto", "kill"), "ManagedOOMMemoryPressure": oneOf("auto", "kill"),
	"ManagedOOMPreference": oneOf("none", "avoid", "omit"),
	"DevicePolicy":         oneOf("auto", "closed", "strict"),
	"Slice":                words,
	"CPUAccounting":        boolean, "MemoryAccounting": boolean, "TasksAccounting": boolean, "IOAccounting": boolean,
	"Delegate": boolean, "SendSIGHUP": boolean, "SendSIGKILL": boolean,
}

// SameLimit reports whether two properties set the same limit, so that the later one replaces the
// earlier one: MemoryMax, in bytes, and MemoryMaxScale, a share of the machine's memory.
func SameLimit(a, b string) bool {
	return strings.TrimSuffix(a, "Scale") == strings.TrimSuffix(b, "Scale")
}

// Parse parses NAME=VALUE and returns the property with its D-Bus name and type: MemoryMax=1G
// becomes MemoryMax t, RuntimeMaxSec=1h becomes RuntimeMaxUSec t.
func Parse(text string) (string, dbus.Variant, error) {
	name, value, ok := strings.Cut(text, "=")
	if !ok || name == "" {
		return "", dbus.Variant{}, fmt.Errorf("invalid unit property %q: expected NAME=VALUE", text)
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

// Names returns the property names that Parse accepts, sorted.
func Names() []string { return slices.Sorted(maps.Keys(unitProperties)) }

// Encode converts a property's value to text for a record and returns its D-Bus signature, too;
// Decode reverses this. The text is readable where godbus can parse it back. An error means that no
// unit property has this type.
func Encode(v dbus.Variant) (signature, text string, err error) {
	signature, text = v.Signature().String(), v.String()
	if back, err := Decode(signature, text); err == nil && reflect.DeepEqual(back, v) {
		return signature, text, nil
	}
	text, err = encodeWire(v)
	return signature, text, err
}

// Decode parses the result of Encode.
func Decode(signature, text string) (v dbus.Variant, err error) {
	defer func() {
		// godbus (5.2) panics if the text does not match the signature, such as [] for b
		if p := recover(); p != nil {
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

// scale parses a percentage of the machine's capacity as the property NAMEScale, a fraction of
// 2^32.
func scale(name, value string) (string, any, error) {
	percent, err := parsePercent(value)
	if err != nil || percent > 100 {
		return "", nil, fmt.Errorf("invalid value %q: expected a percentage up to 100", value)
	}
	return name + "Scale", uint32(math.Round(percent / 100 * math.MaxUint32)), nil
}

// cpuQuota parses a percentage of one processor, which may exceed 100 %, as processor time per
// second.
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

// timeSpan parses NAMESec of unit files, which is NAMEUSec on D-Bus.
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

// cpuSet parses a list such as "0-3,5" as a bit set, lowest bit first.
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
	on, err := config.ParseBool(value)
	return name, on, err
}

func words(name, value string) (string, any, error) {
	if value == "" {
		return "", nil, fmt.Errorf("invalid value %q: expected a name", value)
	}
	return name, value, nil
}

func oneOf(values ...string) func(name, value string) (string, any, error) {
	return func(name, value string) (string, any, error) {
		if !slices.Contains(values, value) {
			return "", nil, fmt.Errorf("invalid value %q: expected one of %s", value, strings.Join(values, ", "))
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

// parseSize parses a size in bytes, or "infinity".
func parseSize(text string) (uint64, error) {
	if text == "infinity" {
		return math.MaxUint64, nil
	}
	// systemd's infinity exceeds the range of ParseBytes
	if n, err := strconv.ParseUint(text, 10, 64); err == nil {
		return n, nil
	}
	n, err := config.ParseBytes(text)
	return uint64(n), err
}
