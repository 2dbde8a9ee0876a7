package effects

import (
	"context"

	"github.com/corrald/corral/internal/environment"
	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/supervisor/environments"
)

// FindProgram implements supervisor.Programs.
func (x *Executor) FindProgram(ctx context.Context, name, dir string, env environments.Sources) error {
	return x.Environments.FindProgram(ctx, name, dir, env)
}

// environment returns the environment of the run's agent as NAME=VALUE.
func (x *Executor) environment(ctx context.Context, p supervisor.Plan) ([]string, error) {
	variables, err := x.Variables(ctx, p)
	return environment.Entries(variables), err
}

// Variables implements supervisor.Environments.
func (x *Executor) Variables(ctx context.Context, p supervisor.Plan) ([]environment.Variable, error) {
	return x.Environments.Compose(ctx, p.Environment, p.ID, p.Spec.Dir)
}
