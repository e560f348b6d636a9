// Package chat is a conversation in a terminal (S1.1): it talks to a running
// server, or to one of its own inside the program, over the HTTP API alone.
//
// What the model says goes to standard output; everything else, tool calls,
// their output and remarks, goes to standard error, so that the answers can be
// piped on.
package chat
