package main

import (
	"fmt"
	"log/slog"

	"weir.dev/weir/server/rules"
	"weir.dev/weir/server/source"
)

// rulesFiles returns the files that the rules are in, or nil if a management server has
// them.
func (o *serveOptions) rulesFiles(log *slog.Logger) *source.Files {
	switch set := o.compat; {
	case set == nil:
		return source.New(source.Options{Log: log}, o.config...)
	case set.Config.XDS:
		return nil
	default:
		return source.New(source.Options{AnyName: true, Beside: set.Config.WatchRoot, Log: log}, o.config...)
	}
}

// load reads the rules for the first time. In compat the service starts without them, if
// need be, and waits for better ones; in weir's own mode the error says what is wrong.
func (s *server) load() error {
	switch s.files = s.opts.rulesFiles(s.log); {
	case s.files == nil:
		return nil
	case s.opts.compat != nil:
		s.take(s.files.Read()) // an error is logged, and counted
		return nil
	case len(s.opts.config) == 0:
		return fmt.Errorf("%w, or set WEIR_CONFIG", errNoConfig)
	}
	files, err := s.files.Read()
	if err != nil {
		return err
	}
	config, err := s.opts.parse(files)
	if err != nil {
		return fmt.Errorf("the rules have faults:\n%w", err)
	}
	logWarnings(config, s.log)
	return s.setRules(config)
}

// take makes the service decide by the rules in files, if these could be read and have
// none of the faults; else the rules stay as they were. It counts and logs which it was.
func (s *server) take(files []rules.File, err error) error {
	var config *rules.Config
	if err == nil {
		config, err = s.opts.parse(files)
	}
	if err == nil {
		err = s.setRules(config)
	}
	if err != nil {
		s.counts.Counter("ratelimit.service.config_load_error").Add(1)
		s.log.Error("the rules cannot be loaded; those before stay in force", "error", err)
		return err
	}
	s.counts.Counter("ratelimit.service.config_load_success").Add(1)
	logWarnings(config, s.log)
	s.log.Info("rules loaded", "domains", len(config.Domains()), "rules", len(config.Rules()))
	return nil
}

// setRules makes the service decide by config, wherever it comes from.
func (s *server) setRules(config *rules.Config) error {
	if err := s.service.SetRules(config); err != nil {
		return err
	}
	s.checks.set(rulesLoaded, true)
	return nil
}

// parse reads rules as the mode wants them.
func (o *serveOptions) parse(files []rules.File) (*rules.Config, error) {
	if o.compat == nil {
		return rules.Options{MergeDomains: o.mergeDomains}.Parse(files...)
	}
	return rules.Options{Compat: true, MergeDomains: o.compat.Config.MergeDomains}.Parse(files...)
}

// logWarnings logs what rules surely do not mean.
func logWarnings(config *rules.Config, log *slog.Logger) {
	for _, w := range config.Warnings {
		log.Warn("rules", "at", fmt.Sprintf("%s:%d:%d", w.File, w.Line, w.Column), "warning", w.Message)
	}
}
