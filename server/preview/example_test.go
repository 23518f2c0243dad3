package preview_test

import (
	"context"
	"os"
	"strings"

	"weir.dev/weir/memstore"
	"weir.dev/weir/server/preview"
	"weir.dev/weir/server/rules"
)

const accessLog = `203.0.113.9 - - [17/May/2015:10:05:01 +0000] "GET / HTTP/1.1" 200 512
203.0.113.9 - - [17/May/2015:10:05:02 +0000] "GET /a HTTP/1.1" 200 512
203.0.113.9 - - [17/May/2015:10:05:03 +0000] "GET /b HTTP/1.1" 200 512
198.51.100.7 - - [17/May/2015:10:05:04 +0000] "GET / HTTP/1.1" 200 512
`

// What would a limit of two requests a minute have done to these four?
func Example() {
	config, err := rules.Parse(rules.File{Name: "rules.yaml", Data: []byte(`
domain: site
descriptors:
- key: client
  rate_limit: {unit: minute, requests_per_unit: 2}
`)})
	if err != nil {
		panic(err)
	}
	client, err := preview.ParseTemplate("client={addr}")
	if err != nil {
		panic(err)
	}
	log, err := preview.NewLog(preview.Detect, client)
	if err != nil {
		panic(err)
	}
	if err := log.Read("access.log", strings.NewReader(accessLog)); err != nil {
		panic(err)
	}
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		panic(err)
	}
	report, err := preview.Replay{Config: config, Domain: "site", Store: store}.Run(context.Background(), log)
	if err != nil {
		panic(err)
	}
	if err := report.WriteText(os.Stdout); err != nil {
		panic(err)
	}
	// Output:
	// 4 requests, 2015-05-17 10:05 to 2015-05-17 10:05 UTC
	//
	// RULE    LIMIT                         ALLOWED  DENIED         KEYS  KEYS DENIED
	// client  2 per minute by fixed_window        3       1  25.0%     2            1
	//
	// client: worst minute 2015-05-17 10:05 UTC with 1 denial; denied most:
	//   1  203.0.113.9
}
