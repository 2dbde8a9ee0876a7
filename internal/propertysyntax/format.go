package propertysyntax

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/internal/config"
)

// Format formats a D-Bus unit property as NAME=VALUE in unit file syntax, as Parse reads it.
func Format(name string, v dbus.Variant) string {
	switch value := v.Value().(type) {
	case uint64:
		return numberText(name, value)
	case uint32:
		if whole, ok := strings.CutSuffix(name, "Scale"); ok {
			return whole + "=" + percent(float64(value)/math.MaxUint32*100)
		}
	case bool:
		if value {
			return name + "=yes"
		}
		return name + "=no"
	case string:
		return name + "=" + value
	case []byte:
		return name + "=" + cpuList(value)
	}
	return fmt.Sprintf("%s=%v", name, v.Value())
}

func numberText(name string, value uint64) string {
	switch {
	case name == "CPUQuotaPerSecUSec" && value == math.MaxUint64:
		return "CPUQuota=infinity"
	case name == "CPUQuotaPerSecUSec":
		return "CPUQuota=" + percent(float64(value)/10_000)
	case strings.HasSuffix(name, "CPUWeight") && value == 0:
		return name + "=idle"
	}
	text := strconv.FormatUint(value, 10)
	whole, isTime := strings.CutSuffix(name, "USec")
	switch {
	case isTime:
		name = whole + "Sec"
		text = config.FormatTimeSpan(time.Duration(min(value, math.MaxInt64/1000)) * time.Microsecond)
	case strings.Contains(name, "Memory"):
		text = sizeText(value)
	}
	if value == math.MaxUint64 {
		text = "infinity"
	}
	return name + "=" + text
}

// sizeText formats a number of bytes with the largest unit that divides it.
func sizeText(n uint64) string {
	const units = "KMGTPE"
	unit := ""
	for i := 0; i < len(units) && n > 0 && n%1024 == 0; i++ {
		n, unit = n/1024, units[i:i+1]
	}
	return strconv.FormatUint(n, 10) + unit
}

func percent(value float64) string {
	return strconv.FormatFloat(math.Round(value*100)/100, 'f', -1, 64) + "%"
}

// cpuList formats a bit set, lowest bit first, as a list such as "0-3,5".
func cpuList(bits []byte) string {
	var parts []string
	isSet := func(cpu int) bool { return cpu < 8*len(bits) && bits[cpu/8]&(1<<(cpu%8)) != 0 }
	for first := 0; first < 8*len(bits); first++ {
		if !isSet(first) {
			continue
		}
		last := first
		for isSet(last + 1) {
			last++
		}
		part := strconv.Itoa(first)
		if last > first {
			part += "-" + strconv.Itoa(last)
		}
		parts = append(parts, part)
		first = last
	}
	return strings.Join(parts, ",")
}
