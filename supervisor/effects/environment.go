package effects

import (
	"context"

	"github.com/corrald/corral/internal/environment"
	"github.com/corrald/corral/supervisor"
)

// variables returns the variables of the run's agent, with their sources.
func (x *Executor) variables(ctx context.Context, p supervisor.Plan) ([]environment.Variable, error) {
	return x.Environments.Compose(ctx, p.Environment, p.ID, p.Spec.Dir)
}
