// Command testhelper is nothing but the helper processes of isolation. Tests
// under the race detector start it instead of themselves, since a program with
// the detector takes many times as long to start.
package main

import (
	"os"

	"github.com/wp-durable/wp-durable/tools/isolation/internal/helper"
)

func main() {
	helper.Main()
	os.Exit(2)
}
