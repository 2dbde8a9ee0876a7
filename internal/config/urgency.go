package config

import (
	"fmt"
	"slices"
	"strings"
)

// Urgencies maps kinds of notifications (see NotifyAll) to their urgency (see UrgencyLevels).
type Urgencies map[string]string

// UrgencyLevels are the urgencies of the Desktop Notifications Specification, in ascending order.
var UrgencyLevels = []string{"low", "normal", "critical"}

// ParseUrgencies parses a value of NotifyUrgency=: entries KIND:URGENCY separated by blanks. The
// last entry for a kind applies.
func ParseUrgencies(s string) (Urgencies, error) {
	urgencies := Urgencies{}
	for entry := range strings.FieldsSeq(s) {
		kind, level, ok := strings.Cut(entry, ":")
		switch {
		case !ok:
			return nil, fmt.Errorf("invalid entry %q: expected KIND:URGENCY, such as failed:critical", entry)
		case !slices.Contains(NotifyAll, kind):
			return nil, fmt.Errorf("invalid kind %q: expected one of %s", kind, strings.Join(NotifyAll, ", "))
		case !slices.Contains(UrgencyLevels, level):
			return nil, fmt.Errorf("invalid urgency %q: expected one of %s", level, strings.Join(UrgencyLevels, ", "))
		}
		urgencies[kind] = level
	}
	return urgencies, nil
}
