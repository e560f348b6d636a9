// Package faux is a scripted model provider for tests, benchmarks and offline
// runs: it answers with what a queue of steps, rules by content or a function
// say, with text, thinking, tool calls, errors, delays and token rates, and
// keeps the requests it got.
//
// A request is answered by the first of these that has an answer:
//
//  1. the violation of [Check], with [Options.Strict]
//  2. [Options.Handler]
//  3. the rules of [Provider.AddRules], oldest first
//  4. the queue of [Provider.Push]
//
// and else fails with class invalid_request, "no faux response".
//
// Without delays an answer costs no timer and no goroutine.
//
// The package depends on the standard library and durable/model alone.
package faux
