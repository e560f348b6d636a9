// Package aimocktest holds tests only: the adapters against aimock, a mock
// server of the providers' wire formats that others wrote, so that both sides
// cannot share a misunderstanding. The adapters' own scripted servers check
// what aimock does not: the rules for requests.
//
// The tests want the server's address in AIMOCK_URL, with the fixtures of
// testdata loaded; .ci/aimock starts one:
//
//	.ci/aimock go test ./durable/model/aimocktest/
//
// Without it they are skipped, and fail where CI is set.
package aimocktest
