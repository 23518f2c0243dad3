package main

import (
	"fmt"
	"log/slog"

	"weir.dev/weir/server/rules"
	"weir.dev/weir/server/source"
)

// load reads the rules for the first time. In compat the service starts without them, if
// need be, and waits for better ones; in weir's own mode the error says what is wrong.
func (s *server) load() error {
	if s.opts.compat == nil {
		config, err := loadRules(s.opts.config, s.log)
		if err != nil {
			return err
		}
		return s.setRules(config)
	}
	if !s.opts.compat.Config.XDS {
		s.take(source.Read(s.opts.config...))
	}
	return nil
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
		return rules.Parse(files...)
	}
	return rules.Options{Compat: true, MergeDomains: o.compat.Config.MergeDomains}.Parse(files...)
}

// loadRules reads the rules, and logs what they surely do not mean.
func loadRules(paths []string, log *slog.Logger) (*rules.Config, error) {
	if len(paths) == 0 {
		return nil, fmt.Errorf("%w, or set WEIR_CONFIG", errNoConfig)
	}
	files, err := source.Read(paths...)
	if err != nil {
		return nil, err
	}
	config, err := rules.Parse(files...)
	if err != nil {
		return nil, fmt.Errorf("the rules have faults:\n%w", err)
	}
	logWarnings(config, log)
	return config, nil
}

func logWarnings(config *rules.Config, log *slog.Logger) {
	for _, w := range config.Warnings {
		log.Warn("rules", "at", fmt.Sprintf("%s:%d:%d", w.File, w.Line, w.Column), "warning", w.Message)
	}
}
