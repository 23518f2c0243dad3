package clientip_test

import (
	"fmt"
	"net/http/httptest"
	"net/netip"

	"weir.dev/weir"
	"weir.dev/weir/clientip"
)

// A client that names another address in its own header is still known by the one that
// the proxy saw.
func Example() {
	proxies, err := clientip.New([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, clientip.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.0.0.1:43210"
	r.Header.Set("X-Forwarded-For", "198.51.100.1, 203.0.113.9") // the first is the client's, the second the proxy's

	client, err := proxies.Addr(r.RemoteAddr, r.Header)
	fmt.Println(client, err)
	// Output: 203.0.113.9 <nil>
}

// One client has at least 2^64 addresses of IPv6, and shall have one limit.
func ExampleNetwork() {
	for _, text := range []string{"203.0.113.9", "2001:db8:1:2:aaaa::1", "2001:db8:1:2:bbbb::2"} {
		network := clientip.Network(netip.MustParseAddr(text), 64)
		fmt.Println(network, weir.Addr(network.Addr()))
	}
	// Output:
	// 203.0.113.9/32 @203.0.113.9
	// 2001:db8:1:2::/64 @2001:db8:1:2::
	// 2001:db8:1:2::/64 @2001:db8:1:2::
}
