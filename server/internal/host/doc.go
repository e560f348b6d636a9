// Package host assembles a server out of its parts: the data folder, the store,
// the models, the tools in their isolation, the engine and the HTTP server, in
// the order in which they must come up and go down (S1).
//
//	secrets leave the environment        before this package is called
//	data folder, store (its lock)        a second server is refused here
//	listener                             a port that is taken is an error before any work resumes
//	isolation                            what an earlier server left running is ended
//	engine                               work resumes
//	HTTP                                 requests are answered, server.json is written
//
// Down it goes the other way round, but that the engine stops while the last
// requests are answered.
package host
