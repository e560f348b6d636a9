// Package demo is a model provider for the first minute: without a key and
// without network it answers from a small script, says so, and uses the tools
// it is offered, so that everything around the model can be tried.
//
//   - "run ls -la", or any message with `code` in it: calls the tool bash and
//     then reports what it printed
//   - "read notes.txt": calls the tool read
//   - "fetch https://example.org": calls the tool http_fetch
//   - anything else: says what it is and what it can do
//
// Its answers depend on the request alone. The package depends on the standard
// library and durable/model alone.
package demo
