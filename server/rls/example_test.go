package rls_test

import (
	"context"
	"fmt"
	"log"

	"weir.dev/weir/memstore"
	"weir.dev/weir/server/rls"
	"weir.dev/weir/server/rules"
)

func ExampleService_Decide() {
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	service, err := rls.New(store, rls.Options{Headers: rls.Headers{Counts: true}})
	if err != nil {
		log.Fatal(err)
	}
	config, err := rules.Parse(rules.File{Name: "shop.yaml", Data: []byte(`
domain: shop
descriptors:
  - {key: user, rate_limit: {unit: year, requests_per_unit: 1}}
`)})
	if err != nil {
		log.Fatal(err)
	}
	if err := service.SetRules(config); err != nil {
		log.Fatal(err)
	}
	request := &rls.Request{Domain: "shop", Descriptors: []rls.Descriptor{{Entries: []rules.Entry{{Key: "user", Value: "alice"}}}}}
	for range 2 {
		answer, err := service.Decide(context.Background(), request)
		if err != nil {
			log.Fatal(err) // nothing could decide
		}
		fmt.Println(answer.OverLimit, answer.Headers[0], answer.Headers[1])
	}
	// Output:
	// false {RateLimit-Limit 1} {RateLimit-Remaining 0}
	// true {RateLimit-Limit 1} {RateLimit-Remaining 0}
}
