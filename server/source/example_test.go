package source_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"weir.dev/weir/server/rules"
	"weir.dev/weir/server/source"
)

func ExampleFiles_Watch() {
	dir, err := os.MkdirTemp("", "rules")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	os.WriteFile(filepath.Join(dir, "shop.yaml"), []byte("domain: shop"), 0o600)

	files := source.New(source.Options{}, dir)
	first, err := files.Read()
	fmt.Println(len(first), err)

	os.WriteFile(filepath.Join(dir, "cafe.yaml"), []byte("domain: cafe"), 0o600)
	ctx, stop := context.WithCancel(context.Background())
	files.Watch(ctx, nil, func(changed []rules.File, err error) {
		for _, f := range changed {
			fmt.Println(filepath.Base(f.Name), string(f.Data))
		}
		stop()
	})
	// Output:
	// 1 <nil>
	// cafe.yaml domain: cafe
	// shop.yaml domain: shop
}
