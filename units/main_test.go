package units

import (
	"testing"

	"github.com/corrald/corral/internal/testbed"
)

func TestMain(m *testing.M) { testbed.Main(m) }
