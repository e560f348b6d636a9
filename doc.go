// Package wpdurable is the map of the module; it holds no code.
//
// # Folders
//
// durable is the engine and the one door to it: durable.Open. Its nouns are
// conversation, entry, task, document, submission; the machinery behind them is
// in durable/internal. It knows stores, models and tools by interfaces only.
//
// durable/model is the language of messages, providers and errors, without any
// knowledge of the engine. Below it are the adapters: anthropic and openai speak
// to providers, faux follows a script, demo answers without a key, and catalog
// describes models.
//
// durable/sqlstore keeps everything in a database, durable/sqlstore/sqlite
// opens the one that needs no server. durable/memstore is the reference in
// memory, and durable/storetest is what every store must pass.
//
// durable/env is how tools reach files and processes; durable/env/local is this
// machine, and durable/env/envtest is what every environment must pass.
//
// tools are the coding tools over an environment. tools/isolation runs their
// commands where they can do no harm, tools/secrets keeps secrets out of all
// that is shown or stored.
//
// extensions bring tools, prompt sections and hooks of services: planned, see
// extensions/SPEC.md.
//
// server is the reference HTTP server over all of this, and server/cmd/wp-durable
// the program. It holds no state that a restart would miss.
//
// bridge lets a conversation work in a folder of a person's own machine:
// planned, see bridge/SPEC.md. It imports nothing of this module outside bridge.
//
// examples are programs to start from. internal/lint holds the rules of this
// tree as tests.
//
// Arrows point one way: durable <- tools <- extensions <- server.
//
// # The data's way
//
//	submission  Conversation.Submit, or POST .../submit on the server
//	   │        one commit on the tree's line: the input's entry and its task
//	   ▼
//	task        pi.generation: asks the model, pi.tool: runs a call
//	   │        the store is flushed before anybody sees a commit
//	   ▼
//	phase       commit the intent, do the effect, commit the outcome; a killed
//	   │        process finds the task in the store and goes on from there
//	   ▼
//	document    usage, inbox, settings and the host's own state change in the
//	            same commits; the last one settles the submission and wakes
//	            whoever waits for it
//
// What each part promises is in the SPEC.md beside it: durable/SPEC.md (E),
// server/SPEC.md (S), extensions/SPEC.md (X), extensions/gatekeeper/SPEC.md (G),
// bridge/SPEC.md (B), bridge/acp/SPEC.md (A).
package wpdurable
