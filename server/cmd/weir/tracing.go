package main

import (
	"context"

	"weir.dev/weir/server/tracing"
)

// openTracing begins to export spans, in compat, if a setting says so.
func (s *server) openTracing() (err error) {
	set := s.opts.compat
	if set == nil || !set.Tracing.Enabled {
		return nil
	}
	s.tracer, err = tracing.New(context.Background(), tracing.Options{
		Protocol:    set.Tracing.Protocol,
		ServiceName: set.Tracing.ServiceName,
		Namespace:   set.Tracing.ServiceNamespace,
		InstanceID:  set.Tracing.InstanceID,
		Share:       set.Tracing.SamplingRate,
		Log:         s.log,
	})
	return err
}

// closeTracing exports the spans that are left.
func (s *server) closeTracing() {
	if s.tracer == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	if err := s.tracer.Close(ctx); err != nil {
		s.log.Warn("the last spans are lost", "error", err)
	}
}
