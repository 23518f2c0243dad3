package main

import (
	"fmt"

	"weir.dev/weir/server/rls"
)

// headerForm is a flag: which headers answers carry; "" is none.
type headerForm string

// Set implements pflag.Value.
func (f *headerForm) Set(text string) error {
	switch text {
	case "draft-11", "counts":
		*f = headerForm(text)
		return nil
	}
	return fmt.Errorf("%.40q is not known: write draft-11 or counts", text)
}

// String implements pflag.Value.
func (f *headerForm) String() string { return string(*f) }

// Type implements pflag.Value.
func (f *headerForm) Type() string { return "FORM" }

// headers says it to the service.
func (f headerForm) headers() rls.Headers {
	return rls.Headers{Draft11: f == "draft-11", Counts: f == "counts"}
}
