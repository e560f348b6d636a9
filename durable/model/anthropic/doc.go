// Package anthropic is the codec of the Anthropic Messages API, for Anthropic
// itself and for servers that speak its format.
//
// # What is sent
//
// A request is a pure function of the transcript, so that of two consecutive
// requests the first one's bytes are a prefix of the second's up to its last
// message: prompt caches and signed thinking both depend on it. Raw JSON (tool
// inputs, schemas) keeps its text. Thinking goes back unchanged and only to the
// model that made it; without a signature it is left out. Messages of one side
// are joined, results first, because every tool call wants all its results in
// the very next message.
//
// # Quirks
//
// The adapter reads these keys of [model.Info.Quirks]. The first value is the
// default.
//
//	key             value          meaning
//	thinking        adaptive       adaptive thinking with an effort
//	                budget         thinking with a token budget, as models up to 4.5 want it;
//	                               the budget is added to the output limit
//	thinking_off    omit           nothing is sent when thinking is off
//	                disabled       thinking is on by default and can be disabled
//	                between_tools  thinking can only be kept to the time between tool calls
//	                always         thinking cannot be switched off; off is sent as low effort
//	system_updates  fold           system changes go into the leading prompt
//	                inline         the model takes them where they were said
//	cache           blocks         breakpoints move along with the messages
//	                auto           the server moves one breakpoint by itself
//	                off            none
//	eager_tools     off, on        tool arguments are streamed as they are written
//
// A change of the tool list always goes into the leading list. With inline
// updates such a change, and a baseline in the middle of a transcript, leave
// out the thinking before it: it is bound to the prefix that went away.
//
// This package depends on the standard library, package model and its wire
// package alone.
package anthropic
