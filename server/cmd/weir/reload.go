package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir.dev/weir/server/rules"
	"weir.dev/weir/server/xds"
)

// maxLogged is how many faults, and how many warnings, of one load are logged.
const maxLogged = 20

// reload keeps the rules up to date until ctx ends.
func (s *server) reload(ctx context.Context) {
	if s.management != nil {
		s.management.Run(ctx, s.takeUpdate)
		return
	}
	s.files.Watch(ctx, s.hangups, func(files []rules.File, err error) { s.take(files, err, inFile) })
}

// catchHangups makes SIGHUP, which would end the process, a wish to read the rules again.
func (s *server) catchHangups() {
	s.hangups = make(chan os.Signal, 1)
	signal.Notify(s.hangups, syscall.SIGHUP)
}

// takeUpdate takes what the management server has sent, or says why not.
func (s *server) takeUpdate(u *xds.Update, err error) error {
	if err != nil {
		return s.take(nil, err, inFile)
	}
	return s.take(u.Files, nil, u.Explain)
}

// inFile says a fault of a file.
func inFile(f rules.Fault) (at, message string) {
	return fmt.Sprintf("%s:%d:%d", f.File, f.Line, f.Column), f.Message
}

// take makes the service decide by the rules in files, if these could be read and have no
// faults; else the rules stay as they were. It counts and logs which it was, with faults
// as explain says them.
func (s *server) take(files []rules.File, err error, explain func(rules.Fault) (at, message string)) error {
	var config *rules.Config
	if err == nil {
		config, err = s.opts.parse(files)
	}
	if err == nil {
		err = s.setRules(config)
	}
	if err != nil {
		s.countLoad(err)
		s.logFailure(err, explain)
		return err
	}
	s.logWarnings(config, explain)
	s.log.Info("rules loaded", "domains", len(config.Domains()), "rules", len(config.Rules()))
	return nil
}

// setRules makes the service decide by config, wherever it comes from.
func (s *server) setRules(config *rules.Config) error {
	if err := s.service.SetRules(config); err != nil {
		return err
	}
	well := true
	if set := s.opts.compat; set != nil && set.Config.HealthyOnceOneLoaded {
		well = len(config.Domains()) > 0
	}
	s.checks.set(rulesLoaded, well)
	s.countLoad(nil)
	return nil
}

// logFailure logs why rules cannot be loaded, a line for each fault.
func (s *server) logFailure(err error, explain func(rules.Fault) (at, message string)) {
	message := "the rules cannot be loaded; those before stay in force"
	if s.service.Rules() == nil {
		message = "the rules cannot be loaded; none are in force, so every request gets an error"
	}
	var faults rules.Faults
	if !errors.As(err, &faults) {
		s.log.Error(message, "error", err)
		return
	}
	for _, f := range faults[:min(len(faults), maxLogged)] {
		at, what := explain(f)
		s.log.Error("rules", "at", at, "fault", what)
	}
	s.log.Error(message, "faults", len(faults))
}

// logWarnings logs what rules surely do not mean.
func (s *server) logWarnings(config *rules.Config, explain func(rules.Fault) (at, message string)) {
	for _, w := range config.Warnings[:min(len(config.Warnings), maxLogged)] {
		at, what := explain(w)
		s.log.Warn("rules", "at", at, "warning", what)
	}
	if more := len(config.Warnings) - maxLogged; more > 0 {
		s.log.Warn("rules: weir check says the rest", "more_warnings", more)
	}
}

// loads are the metrics of loading rules.
type loads struct {
	total  *prometheus.CounterVec
	latest prometheus.Gauge
}

// newLoads returns them registered.
func newLoads(registry *prometheus.Registry) *loads {
	l := &loads{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rate_limit_rules_loads_total",
			Help: "Times that new rules were found, by what became of them: success, or error, which leaves those before in force.",
		}, []string{"outcome"}),
		latest: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "rate_limit_rules_loaded_timestamp_seconds",
			Help: "When the rules in force were loaded, in seconds since 1970; 0 if none are.",
		}),
	}
	for _, outcome := range []string{"success", "error"} {
		l.total.WithLabelValues(outcome) // there from the start, so that the first error is an increase
	}
	registry.MustRegister(l.total, l.latest)
	return l
}

// countLoad counts a load, by the original's names too.
func (s *server) countLoad(err error) {
	if err != nil {
		s.counts.Configured("ratelimit.service.config_load_error").Add(1)
		s.loads.total.WithLabelValues("error").Inc()
		return
	}
	s.counts.Configured("ratelimit.service.config_load_success").Add(1)
	s.loads.total.WithLabelValues("success").Inc()
	s.loads.latest.Set(float64(time.Now().UnixMilli()) / 1000)
}
