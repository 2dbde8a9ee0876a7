package dbusapi

// Property describes a property of the contract.
type Property struct {
	Name         string
	Announced    Announcement
	MayBeUnknown bool
	NotKnown     uint64 // with MayBeUnknown: the value of a number that is not known
}

// Announcement is how changes of a property are announced: the value of its annotation
// EmitsChangedSignal in the D-Bus specification.
type Announcement int

// The announcements.
const (
	AnnouncedWithValue    Announcement = iota // "true": PropertiesChanged contains the new value
	AnnouncedWithoutValue                     // "invalidates": PropertiesChanged contains the name only
	NotAnnounced                              // "false"
	NeverChanges                              // "const"
)
