// Package model is the provider-neutral language of the engine: messages and
// their blocks, usage and prices, the [Provider] interface that streams one
// request, the classes of errors a provider can end in, and the [Set] of
// providers and models a host offers.
//
// The adapters live below it (anthropic, openai, faux, demo). This package and
// the adapters know nothing of the engine: they depend on the standard library
// alone, so a program can use them without it.
//
// # Errors
//
// A provider fails with an [*Error] whose [Class] says what to do about it.
//
//	situation                                   class
//	too many requests, wait and repeat          ClassRateLimit
//	no money, no quota                          ClassQuota
//	provider overloaded                         ClassOverloaded
//	provider fault                              ClassServerError
//	connection lost, stalled, timed out         ClassNetwork, ClassStalled, ClassTimeout
//	answer without its terminal event           ClassIncompleteStream
//	answer that is not the protocol             ClassProtocol
//	thinking signature refused                  ClassThinkingMismatch
//	context too long                            ClassContextOverflow
//	body too large                              ClassRequestTooLarge
//	request refused, key refused, no such model ClassInvalidRequest, ClassAuth, ClassNotFound
//	model or filter refused to answer           ClassRefusal, ClassContentFilter
//	cancelled by us                             ClassAborted
package model
