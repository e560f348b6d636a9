// Package wire is what the model adapters share: one POST that answers with a
// stream of server-sent events, and the reading of every way in which that can
// fail.
//
//	client := wire.NewClient(&wire.Options{})
//	stream, err := client.Do(ctx, &wire.Request{URL: …, Header: …, Body: …, Secrets: …})
//	if err != nil {
//		return err // an *model.Error: classified, bounded, without the key
//	}
//	defer stream.Close()
//	for {
//		ev, err := stream.Next()
//		if err == io.EOF {
//			break // the body ended; was the terminal event seen?
//		}
//		if err != nil {
//			return err // an *model.Error
//		}
//		…
//	}
//
// # What it decides and what it leaves
//
// It decides the class of everything that HTTP and the connection show: status,
// error body, redirect, connection, idle time, cancelled context. It does not
// know what an event means: a body that ends cleanly is io.EOF, and the adapter
// answers with [Stream.Incomplete] when its terminal event is missing. An error
// that arrives as an event goes through [Stream.Failed], data that cannot be
// decoded through [Stream.Protocol]. All of them carry the request's id and
// never a credential.
//
// It never retries and never follows a redirect.
//
// This package depends on the standard library and package model alone.
package wire
