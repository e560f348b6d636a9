// Package web holds the server's HTTP conventions (S2): which requests are
// heard at all, how errors look, and the set-up of Huma.
//
// A request passes, in this order:
//
//	Recover   a panic is a 500, a slow reader loses its connection
//	Target    the raw request target is sound
//	Guard     Host and Origin are known, against web pages that attack
//	Auth      everything under /v1 needs the token
//	Routes    unknown routes and methods, content type, body size
//	Huma      parameters and bodies fit their schemas
//
// It knows nothing of the engine and of the server's routes.
package web
