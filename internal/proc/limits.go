package proc

import (
	"fmt"
	"math"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// sizeLimits are the files with a limit in bytes, and the unit properties that set them.
var sizeLimits = []struct{ file, property string }{
	{"memory.max", "MemoryMax"}, {"memory.high", "MemoryHigh"}, {"memory.swap.max", "MemorySwapMax"},
}

// Limits returns the limits on memory, swap, CPU time and CPUs of processes in a control group, as
// unit properties: "MemoryMax=1073741824". It leaves out those that also apply to processes in the
// other group, because it is below the same group. The limits of a group and of those above it are
// effective together: of each kind, the lowest one is returned.
func Limits(group, other string) ([]string, error) {
	root, err := CgroupRoot()
	if err != nil {
		return nil, err
	}
	return limitsBelow(root, group, other), nil
}

func limitsBelow(root, group, other string) []string {
	least := map[string]float64{}
	lower := func(property string, value float64) {
		if known, ok := least[property]; !ok || value < known {
			least[property] = value
		}
	}
	cpus := ""
	own := group
	for ; !isBelow(other, group); group = path.Dir(group) {
		dir := filepath.Join(root, group)
		for _, limit := range sizeLimits {
			if size, err := strconv.ParseUint(limitIn(dir, limit.file), 10, 64); err == nil { // else "max"
				lower(limit.property, float64(size))
			}
		}
		quota, period, _ := strings.Cut(limitIn(dir, "cpu.max"), " ")
		if q, err := strconv.ParseFloat(quota, 64); err == nil { // else "max"
			if p, err := strconv.ParseFloat(period, 64); err == nil && p > 0 {
				lower("CPUQuota", 100*q/p)
			}
		}
		if limitIn(dir, "cpuset.cpus") != "" {
			cpus = limitIn(filepath.Join(root, own), "cpuset.cpus.effective")
		}
	}
	var limits []string
	for _, limit := range sizeLimits {
		if size, ok := least[limit.property]; ok {
			limits = append(limits, fmt.Sprintf("%s=%d", limit.property, uint64(size)))
		}
	}
	if percent, ok := least["CPUQuota"]; ok {
		limits = append(limits, fmt.Sprintf("CPUQuota=%v%%", math.Ceil(percent)))
	}
	if cpus != "" {
		limits = append(limits, "AllowedCPUs="+cpus)
	}
	return limits
}

// isBelow reports whether a control group is another one or below it.
func isBelow(group, other string) bool {
	return other == "/" || strings.HasPrefix(group+"/", other+"/")
}

// limitIn returns the content of a file of a control group, "" if the group does not have it.
func limitIn(dir, file string) string {
	text, _ := ReadFile(filepath.Join(dir, file))
	return strings.TrimSpace(string(text))
}
