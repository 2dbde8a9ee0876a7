package supervisor

import "context"

// WhenAccepted returns a context for a method that waits for something. The method calls accepted,
// possibly more than once, when the event loop has accepted the request: requests made after that
// are handled after it. A method that does not wait, or is refused at once, does not call it.
func WhenAccepted(ctx context.Context, accepted func()) context.Context {
	return context.WithValue(ctx, acceptedKey{}, accepted)
}

// acceptedKey is the key of the function that WhenAccepted adds to a context.
type acceptedKey struct{}

// accepted reports that the event loop has accepted the request that the context belongs to.
func accepted(ctx context.Context) {
	if f, ok := ctx.Value(acceptedKey{}).(func()); ok {
		f()
	}
}

// notYetAccepted returns a context for a method that carries out only a part of a request: later
// requests still wait.
func notYetAccepted(ctx context.Context) context.Context { return WhenAccepted(ctx, func() {}) }
