// Package gatewaytest tests the example configurations of the gateways that ask by HTTP:
// each in a real gateway, before the real program, with a real client. Of the files only
// the addresses are others, and the times: limits are for a year each, so that no test
// outlasts one, and gateways wait a minute for an answer, so that a busy machine makes a
// test slower, not red.
package gatewaytest
