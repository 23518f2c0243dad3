// Package archtest holds the rule of which package may import which, over all modules of the repository, as a test. Its
// map is the first thing in imports_test.go.
package archtest
