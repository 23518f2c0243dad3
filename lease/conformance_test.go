package lease_test

import (
	"testing"

	"weir.dev/weir"
	"weir.dev/weir/lease"
	"weir.dev/weir/memstore"
	"weir.dev/weir/storetest"
)

func TestStoreKeepsTheContract(t *testing.T) {
	for name, opts := range map[string]lease.Options{
		"combining only": {},
		"one instance":   {Block: 1000, Instances: 1},
		"few keys":       {Block: 50, Instances: 4, MaxKeys: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, storetest.Subject{New: func(t *testing.T) weir.Store {
				memory, err := memstore.New(memstore.Options{})
				if err != nil {
					t.Fatal(err)
				}
				s, err := lease.New(memory, opts)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { s.Close() })
				return s
			}})
		})
	}
}
