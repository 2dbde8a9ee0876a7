package supervisor

import "context"

type acceptedKey struct{}

// WhenAccepted has accepted called once a method that is given the returned context has been let in by the loop: what is asked for after that is
// done after it. It is called at most once for each method that waits for something, and not at all by those that do not.
func WhenAccepted(ctx context.Context, accepted func()) context.Context {
	return context.WithValue(ctx, acceptedKey{}, accepted)
}

// notYetAccepted returns a context for methods that are only part of what was asked for: what is asked for after that still waits.
func notYetAccepted(ctx context.Context) context.Context { return WhenAccepted(ctx, func() {}) }

func accepted(ctx context.Context) {
	if f, ok := ctx.Value(acceptedKey{}).(func()); ok {
		f()
	}
}
