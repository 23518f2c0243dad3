package settings_test

import (
	"fmt"

	"weir.dev/weir/server/settings"
)

func ExampleLoad() {
	environment := map[string]string{"PORT": "80", "REDIS_POOL_SIZE": "20"}
	set, notes, err := settings.Load(func(name string) (string, bool) {
		value, ok := environment[name]
		return value, ok
	})
	fmt.Println(set.Listen.Host, set.Listen.Port, set.Listen.GRPCPort, err)
	for _, n := range notes {
		fmt.Printf("%s has no effect: %s\n", n.Name, n.Why)
	}

	environment["PORT"] = "eighty"
	_, _, err = settings.Load(func(name string) (string, bool) {
		value, ok := environment[name]
		return value, ok
	})
	fmt.Println(err)
	// Output:
	// 0.0.0.0 80 8081 <nil>
	// REDIS_POOL_SIZE has no effect: one connection to each Redis node carries all questions, which are pipelined as they come
	// PORT: "eighty" is not a whole number from 0 to 65535: write one
}
