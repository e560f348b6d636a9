// Package server is the reference HTTP server over package durable: Huma
// routes, and nothing that a Go program could not do with the library itself
// (S2, S3). It holds no state that a restart would miss.
//
//	s, err := server.New(engine, &server.Options{Token: token})
//	srv := &http.Server{Handler: s}
//	...
//	s.Shutdown()        // streams say bye, long polls answer
//	srv.Shutdown(ctx)   // requests under way end
//	engine.Close(ctx)
//
// The program around it, with its configuration, data folder and tools, is
// cmd/wp-durable.
//
// # The data's way
//
// A request passes the conventions of internal/web, its route's handler calls
// the engine, and what the engine returns is converted to the types of this
// package, which are the ones of the OpenAPI document. errors.go decides the
// status of every error. Secrets are masked where bodies are encoded.
//
// The package may depend on durable, durable/model and tools/secrets, and not
// on a store, a model adapter or a tool: it is given what it shows of them.
package server

//go:generate go run ./cmd/wp-durable openapi -o ../openapi.yaml
