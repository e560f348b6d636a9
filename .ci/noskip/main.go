// Command noskip reads the output of go test -json and prints what go test
// prints without -json: a line per package, and everything of a test that
// failed. It ends with a count, and with exit code 1 when a test failed, when
// one was skipped, or when none ran: a check that was skipped was not done.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// event is one line of go test -json (go doc test2json).
type event struct {
	Action     string
	Package    string
	ImportPath string // of build output
	Test       string
	Output     string
}

// pkg is a package whose tests run.
type pkg struct {
	order  []string                    // tests, as they began; "" is the package itself
	output map[string]*strings.Builder // of tests that have not passed
}

func main() {
	var passed, failed, done int
	var skipped []string
	broken := false
	packages := map[string]*pkg{}
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadString('\n')
		if line != "" {
			var e event
			if json.Unmarshal([]byte(line), &e) != nil || e.Action == "" {
				fmt.Print(line)
			} else {
				p := packages[e.Package]
				if p == nil {
					p = &pkg{output: map[string]*strings.Builder{}}
					packages[e.Package] = p
				}
				switch e.Action {
				case "build-output":
					fmt.Print(e.Output)
				case "build-fail":
					broken = true
				case "output":
					p.add(e.Test, e.Output)
				case "pass", "fail", "skip":
					switch {
					case e.Test == "":
						broken = broken || e.Action == "fail"
						done++
						p.print(e.Action == "fail")
						delete(packages, e.Package)
					case e.Action == "pass":
						passed++
						p.take(e.Test)
					case e.Action == "fail":
						failed++
					default:
						skipped = append(skipped, e.Package+" "+e.Test+"\n"+p.take(e.Test))
					}
				}
			}
		}
		if err != nil {
			break
		}
	}
	for name, p := range packages { // the stream was cut
		if name != "" {
			p.print(true)
			broken = true
		}
	}
	for _, s := range skipped {
		fmt.Print("SKIPPED ", s)
	}
	fmt.Printf("%d tests passed, %d failed, %d skipped in %d packages\n", passed, failed, len(skipped), done)
	if broken || failed > 0 || len(skipped) > 0 || passed == 0 {
		os.Exit(1)
	}
}

func (p *pkg) add(test, output string) {
	b := p.output[test]
	if b == nil {
		b = &strings.Builder{}
		p.output[test] = b
		p.order = append(p.order, test)
	}
	b.WriteString(output)
}

// take returns the output of a test and forgets it.
func (p *pkg) take(test string) string {
	b := p.output[test]
	if b == nil {
		return ""
	}
	delete(p.output, test)
	return b.String()
}

// print writes the closing line of a package that passed, and all that is left
// of one that did not.
func (p *pkg) print(failed bool) {
	if !failed {
		for line := range strings.Lines(p.take("")) {
			if line != "PASS\n" && !strings.HasPrefix(line, "coverage:") {
				fmt.Print(line)
			}
		}
		return
	}
	own := p.take("") // the verdict comes last
	for _, test := range p.order {
		fmt.Print(p.take(test))
	}
	fmt.Print(own)
}
