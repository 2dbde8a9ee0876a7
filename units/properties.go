package units

// The properties of units that this package reads, by their names on the bus: see
// org.freedesktop.systemd1(5).
const (
	propertyActiveState   = "ActiveState"
	propertyControlGroup  = "ControlGroup"
	propertyController    = "Controller"
	propertyActiveEntered = "ActiveEnterTimestampMonotonic"
	propertyActiveExited  = "ActiveExitTimestampMonotonic"
	propertyInvocationID  = "InvocationID"
	propertyResult        = "Result"
	propertyRuntimeMax    = "RuntimeMaxUSec"
)

// Values of the property Result. The others are passed on as they are.
const (
	resultSuccess = "success"
	// resultTimeout is the Result of a scope that exceeded RuntimeMaxSec=, and also of one that did
	// not stop within TimeoutStopSec=.
	resultTimeout = "timeout"
)
