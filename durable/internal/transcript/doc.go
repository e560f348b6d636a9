// Package transcript derives what a model sees from what a conversation holds:
// the rules of E13, kept incrementally so that a long conversation costs no
// more per turn than a short one (E18).
//
// It knows items, which are entries without their bookkeeping, and messages.
// It may import only durable/model and the standard library: package durable
// imports it, and stores and tasks are not its business.
//
// # From items to messages
//
// The active items are those the newest head leaves: the head item's own
// messages, then the items from its Head on. The newest edit of an item stands
// in for its messages. Each message is then cleaned by itself (see
// [CleanMessage]) and the sequence is put in order:
//
//   - a system message keeps its place; one that changes what no baseline has
//     set is left out;
//   - an assistant message that was aborted, failed or deferred is left out
//     with its results;
//   - results stand directly behind their call's message, in call order;
//     whatever was said between comes after them;
//   - a call without a result gets one that says so, a result without a call
//     and a second result for a call are dropped;
//   - a call id used before is told apart from it;
//   - an assistant message that would stand first, or directly behind another
//     one, gets a constant user message before it;
//   - thinking that a model wrote before a later head, edit or late result
//     changed what stands ahead of it is left out, since providers bind
//     thinking to all that precedes it.
//
// All of this depends only on what comes before a message, except for heads,
// edits and results: appending anything else only appends to the messages, so
// that prompt caches and signed thinking hold (E11).
//
// What depends on the model that is asked comes last, in [ForModel].
package transcript
