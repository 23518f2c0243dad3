package memstore_test

import (
	"testing"

	"weir.dev/weir"
	"weir.dev/weir/memstore"
	"weir.dev/weir/storetest"
)

func TestStoreKeepsTheContract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Subject{
		New: func(t *testing.T) weir.Store { return newStore(t, memstore.DefaultMaxKeys) },
	})
}
