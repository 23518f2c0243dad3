// Package gatewaytest tests the example configurations of the gateways that ask by HTTP:
// each in a real gateway, before the real program, with a real client. Of the files only
// the addresses are others, and the limits are for a year each, so that no test outlasts
// one.
package gatewaytest
