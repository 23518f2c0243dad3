package rules_test

import (
	"fmt"

	"weir.dev/weir/server/rules"
)

func ExampleParse() {
	config, err := rules.Parse(rules.File{Name: "limits.yaml", Data: []byte(`
domain: shop
descriptors:
- key: user
  rate_limit: {unit: minute, requests_per_unit: 100}
- key: user
  value: vip
  rate_limit: {unit: second, requests_per_unit: 50, algorithm: gcra, burst: 200}
`)})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, user := range []string{"vip", "eve"} {
		rule := config.Match("shop", []rules.Entry{{Key: "user", Value: user}})
		fmt.Println(rule.Path, rule.Limits[0])
	}
	// Output:
	// user=vip 50 per second burst 200 by gcra
	// user 100 per minute by fixed_window
}

func ExampleParse_faults() {
	_, err := rules.Parse(rules.File{Name: "limits.yaml", Data: []byte(`
domain: shop
descriptors:
- key: user
  rate_limit: {unit: minutes, requests_per_unit: -1}
`)})
	fmt.Println(err)
	// Output:
	// limits.yaml:5:22: unknown unit "minutes": write minute
	// limits.yaml:5:50: requests_per_unit is -1, less than nothing: write 0 to 4294967295
}
