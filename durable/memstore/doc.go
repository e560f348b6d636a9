// Package memstore is a [durable.Store] in memory: the reference semantics of
// a store, for tests and for programs that need no durability. It favours
// being obviously right over being fast.
//
// It keeps every record in its JSON form, so that it can share no memory with
// its callers (E4.8) and shows them exactly what a store on disk would.
//
// It imports package durable for records, interfaces and errors only, and
// package durable never imports it.
package memstore
