package cost

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/process"
)

func TestMain(m *testing.M) {
	harness.Launcher()
	if os.Getenv(spenderVariable) != "" {
		spend() // This process is the one that a test measures.
		return
	}
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction(process.SpawnerGoroutine))
}
