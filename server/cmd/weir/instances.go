package main

import (
	"fmt"
	"strconv"

	"weir.dev/weir/server/rules"
)

// instances is a flag: how many instances of the service share the limits; 0 until it is
// set.
type instances int

// Set implements pflag.Value.
func (n *instances) Set(text string) error {
	i, err := strconv.Atoi(text)
	if err != nil || i < 1 || i > rules.MaxInstances {
		return fmt.Errorf("%.40q is not how many instances of the service run: write a number from 1 to %d", text, rules.MaxInstances)
	}
	*n = instances(i)
	return nil
}

// String implements pflag.Value.
func (n *instances) String() string {
	if *n == 0 {
		return ""
	}
	return strconv.Itoa(int(*n))
}

// Type implements pflag.Value.
func (n *instances) Type() string { return "NUMBER" }
