package isolation

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	Main()
	if len(os.Args) > 2 && os.Args[1] == attackRole {
		attacker(os.Args[2:])
		return
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			println(err.Error())
			code = 1
		}
	}
	os.Exit(code)
}
