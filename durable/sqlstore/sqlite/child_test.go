package sqlite_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/sqlstore/sqlite"
)

const childVariable = "SQLITE_TEST_CHILD"

// runChild is what this test binary does as another process: it opens the
// database, says so, and commits entry after entry, each followed by its
// number on a line, until it is killed.
func runChild() {
	path := os.Getenv(childVariable)
	if path == "" {
		return
	}
	ctx := context.Background()
	s, err := sqlite.Open(ctx, path, &sqlite.Options{CheckpointPages: 50})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("open")
	entries, err := s.Entries(ctx, durable.EntryQuery{ConversationID: 1, Descending: true, Limit: 1})
	next := durable.EntryID(1)
	if err == nil && len(entries) > 0 {
		next = entries[0].ID + 1
	}
	for ; err == nil; next += 2 {
		_, err = s.Commit(ctx, killBatch(next))
		fmt.Println(next)
	}
	fmt.Println(err)
	os.Exit(1)
}

// killBatch has several records, of which all or none must be found.
func killBatch(n durable.EntryID) *durable.Batch {
	key := durable.DocKey{Scope: durable.ScopeConversation, Owner: 1, Kind: "count"}
	return &durable.Batch{
		Entries:   []durable.Entry{{ID: n, ConversationID: 1, Kind: "a"}, {ID: n + 1, ConversationID: 1, Kind: "b"}},
		Documents: []durable.DocumentWrite{{Record: durable.DocRecord{DocKey: key, Value: []byte(fmt.Sprint(n))}}},
		Partials:  []durable.PartialWrite{{TaskID: 1, Data: make([]byte, 5000)}},
	}
}

// child is the other process.
type child struct {
	cmd *exec.Cmd
	out *bufio.Scanner
}

func startChild(t *testing.T, path string) *child {
	t.Helper()
	c := &child{cmd: exec.Command(os.Args[0], "-test.run=^$")}
	c.cmd.Env = append(os.Environ(), childVariable+"="+path)
	pipe, err := c.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.cmd.Start())
	t.Cleanup(func() { _ = c.cmd.Process.Kill() })
	c.out = bufio.NewScanner(pipe)
	return c
}

// line is the next line that the child prints.
func (c *child) line(t *testing.T) string {
	t.Helper()
	require.True(t, c.out.Scan(), "the other process has ended: %v", c.out.Err())
	return c.out.Text()
}

// kill ends the child at once (kill -9) and returns what else it had printed.
func (c *child) kill(t *testing.T) (rest []string) {
	t.Helper()
	require.NoError(t, c.cmd.Process.Kill())
	for c.out.Scan() {
		rest = append(rest, c.out.Text())
	}
	_ = c.cmd.Wait()
	return rest
}
