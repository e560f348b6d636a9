package demo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/wp-durable/wp-durable/durable/model"
)

// The most that an answer repeats of a tool's output.
const (
	shownLines = 20
	shownBytes = 2000
)

// reply returns the text and, if any, the tool call that answer req.
func (p *Provider) reply(req *model.Request) (string, *model.Block) {
	sys, messages := model.FoldSystem(req.Messages)
	offered := func(name string) bool {
		return slices.ContainsFunc(sys.Tools, func(t model.Tool) bool { return t.Name == name })
	}
	if len(messages) == 0 {
		return p.introduce(sys.Tools), nil
	}
	last := &messages[len(messages)-1]
	if last.Role == model.RoleToolResult {
		return report(messages), nil
	}
	text := last.Text()
	if len(sys.Tools) == 0 && summaryWanted.MatchString(text) {
		return summarise(text), nil
	}
	w := understand(text)
	if w.tool == "" {
		return p.introduce(sys.Tools), nil
	}
	if !offered(w.tool) {
		return fmt.Sprintf("I am a scripted demo, not a model. I understood that I should %s, "+
			"but this conversation does not offer me the tool %s. %s", w.what, w.tool, p.hint), nil
	}
	call, err := newCall(req, w.tool, map[string]string{w.argument: w.value})
	if err != nil {
		return p.introduce(sys.Tools), nil
	}
	return fmt.Sprintf("I am a scripted demo, not a model, but the tool %s is real. I will %s.", w.tool, w.what), call
}

// wish is what the script found in the user's words.
type wish struct {
	tool, argument, value string
	what                  string // continues "I will"
}

var (
	polite        = `(?i)^\s*(?:(?:please|now|then|ok|okay|and|hey|can you|could you|would you)[,:]?\s+)*`
	runLine       = regexp.MustCompile(polite + `(?:run|execute)(?:\s+(?:this|the command|the following))?:?\s+(\S.*)$`)
	promptLine    = regexp.MustCompile(`^\s*[$!]\s*(\S.*)$`)
	readLine      = regexp.MustCompile(polite + `(?:read|show|open|cat)(?:\s+(?:me|the|file))*\s+(\S+)\s*$`)
	fetchURL      = regexp.MustCompile(polite + `(?:fetch|get|open|read|download)\b.*?(https?://[^\s<>"'` + "`" + `]+)`)
	commandWord   = regexp.MustCompile(`^(?:[A-Za-z_][A-Za-z0-9_]*=\S*\s+)*[a-z0-9_./~-]+$`)
	fence         = regexp.MustCompile("(?s)```[ \\t]*[A-Za-z0-9_+-]*[ \\t]*\\r?\\n(.*?)\\r?\\n?[ \\t]*```")
	summaryWanted = regexp.MustCompile(`(?i)\bsummar(?:y|ise|ize)`)
)

// proseWords begin what people ask for in words and no script can run.
var proseWords = []string{"a", "an", "the", "my", "your", "this", "that", "these", "those", "some", "all", "it", "every", "tests", "something", "for"}

func understand(text string) wish {
	if m := fetchURL.FindStringSubmatch(text); m != nil {
		url := strings.TrimRight(m[1], ".,;:!?)]}")
		return wish{"http_fetch", "url", url, "fetch " + url}
	}
	command := code(text)
	if command == "" {
		command = plainCommand(text)
	}
	if command != "" {
		what := "run it"
		if !strings.Contains(command, "\n") && utf8.RuneCountInString(command) <= 120 {
			what = "run " + quote(command)
		}
		return wish{"bash", "command", command, what}
	}
	if m := readLine.FindStringSubmatch(text); m != nil {
		if path := strings.TrimRight(m[1], ".?!,;:"); strings.ContainsAny(path, "./") {
			return wish{"read", "path", path, "read " + quote(path)}
		}
	}
	return wish{}
}

// code returns the first fenced block of text, else the first text between
// back quotes.
func code(text string) string {
	if m := fence.FindStringSubmatch(text); m != nil {
		return strings.TrimSpace(m[1])
	}
	for {
		start := strings.IndexByte(text, '`')
		if start < 0 {
			return ""
		}
		text = text[start:]
		ticks := text[:len(text)-len(strings.TrimLeft(text, "`"))]
		text = text[len(ticks):]
		inner, rest, ok := cutRun(text, len(ticks))
		if ok && strings.TrimSpace(inner) != "" {
			return strings.TrimSpace(inner)
		}
		if ok {
			text = rest
		}
	}
}

// cutRun splits s around the first run of exactly n back quotes.
func cutRun(s string, n int) (before, after string, ok bool) {
	for i := 0; i < len(s); {
		if s[i] != '`' {
			i++
			continue
		}
		run := len(s[i:]) - len(strings.TrimLeft(s[i:], "`"))
		if run == n {
			return s[:i], s[i+n:], true
		}
		i += run
	}
	return "", "", false
}

// plainCommand reads a first line like "run ls -la" or "$ ls".
func plainCommand(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if m := promptLine.FindStringSubmatch(line); m != nil {
		return strings.TrimSpace(m[1])
	}
	m := runLine.FindStringSubmatch(line)
	if m == nil {
		return ""
	}
	command := strings.TrimSpace(m[1])
	if n := len(command); n > 1 && command[n-1] == '.' && !strings.ContainsAny(command[n-2:n-1], " ./") {
		command = command[:n-1]
	}
	word, rest, _ := strings.Cut(command, " ")
	loop := word == "for" && strings.Contains(rest, "; do ")
	if !loop && (slices.Contains(proseWords, strings.ToLower(word)) || !commandWord.MatchString(word) && !strings.Contains(word, "=")) {
		return ""
	}
	return command
}

// quote puts s between back quotes, more of them than s holds in a row.
func quote(s string) string {
	ticks := strings.Repeat("`", longestTicks(s)+1)
	if len(ticks) > 1 {
		return ticks + " " + s + " " + ticks
	}
	return ticks + s + ticks
}

func longestTicks(s string) int {
	longest, run := 0, 0
	for i := range len(s) {
		if s[i] != '`' {
			run = 0
			continue
		}
		run++
		longest = max(longest, run)
	}
	return longest
}

// report tells what the results at the end of the transcript say.
func report(messages []model.Message) string {
	first := len(messages)
	for first > 0 && messages[first-1].Role == model.RoleToolResult {
		first--
	}
	var b strings.Builder
	for i := first; i < len(messages); i++ {
		if b.Len() > 0 {
			b.WriteString("\n\n")
		}
		reportOne(&b, &messages[i])
	}
	b.WriteString("\n\nThe tool call was real and is stored in this conversation; my words are a script, not a model's.")
	return b.String()
}

func reportOne(b *strings.Builder, m *model.Message) {
	subject, outcome := "The tool "+m.ToolName, "has answered"
	if m.ToolName == "bash" {
		subject, outcome = "The command", "has finished"
	}
	if m.IsError {
		outcome = "did not succeed"
	}
	text, cut := tail(strings.TrimRight(m.Text(), " \t\r\n"))
	images := 0
	for i := range m.Content {
		if m.Content[i].Type == model.BlockImage {
			images++
		}
	}
	switch {
	case text == "" && images > 0:
		fmt.Fprintf(b, "%s %s with %d image(s), which I cannot look at.", subject, outcome, images)
		return
	case text == "":
		fmt.Fprintf(b, "%s %s and printed nothing.", subject, outcome)
		return
	case cut:
		fmt.Fprintf(b, "%s %s. The end of what it said:", subject, outcome)
	default:
		fmt.Fprintf(b, "%s %s. It said:", subject, outcome)
	}
	ticks := strings.Repeat("`", max(3, longestTicks(text)+1))
	fmt.Fprintf(b, "\n\n%s\n%s\n%s", ticks, text, ticks)
}

// tail returns the last lines of s that an answer repeats.
func tail(s string) (string, bool) {
	lines := strings.Split(s, "\n")
	short := strings.Join(lines[max(0, len(lines)-shownLines):], "\n")
	if len(short) > shownBytes {
		short = short[len(short)-shownBytes:]
		for len(short) > 0 && !utf8.RuneStart(short[0]) {
			short = short[1:]
		}
	}
	return short, len(short) < len(s)
}

// summarise answers a request to summarise with the end of the text.
func summarise(text string) string {
	end, _ := tail(strings.TrimSpace(text))
	return fmt.Sprintf("This summary was made by a scripted demo, not by a model: it keeps only the end of a text of %d words.\n\n%s",
		len(strings.Fields(text)), end)
}

func (p *Provider) introduce(tools []model.Tool) string {
	var b strings.Builder
	b.WriteString("I am the built-in demo: a small script, not a model, so I do not understand what you write. " +
		"Everything around me is real, though: this conversation is stored, and the tools that I call do their work.")
	var hints []string
	for _, t := range tools {
		switch t.Name {
		case "bash":
			hints = append(hints, "- run `ls -la`", "- run `for i in 1 2 3; do echo tick $i; sleep 1; done`")
		case "read":
			hints = append(hints, "- read notes.txt")
		case "http_fetch":
			hints = append(hints, "- fetch https://example.org")
		}
	}
	if len(hints) > 0 {
		b.WriteString("\n\nTry one of these:\n\n" + strings.Join(hints, "\n"))
	} else {
		b.WriteString("\n\nThis conversation offers me no tool that I know.")
	}
	b.WriteString("\n\n" + p.hint)
	return b.String()
}

// marshal writes args without escaping <, > and &.
func marshal(args map[string]string) (json.RawMessage, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(args); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(buf.Bytes()), nil
}
