package wire

import (
	"io"
	"log"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quiet is a log for servers that fail on purpose.
func quiet() *log.Logger { return log.New(io.Discard, "", 0) }
