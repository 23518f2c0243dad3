package main

import (
	"fmt"
	"log/slog"

	"weir.dev/weir/server/rules"
	"weir.dev/weir/server/source"
)

// load reads the rules and makes the service decide by them. After an error the rules are
// what they were.
func (s *server) load() error {
	config, err := loadRules(s.opts.config, s.log)
	if err != nil {
		return err
	}
	return s.setRules(config)
}

// setRules makes the service decide by config, wherever it comes from.
func (s *server) setRules(config *rules.Config) error {
	if err := s.service.SetRules(config); err != nil {
		return err
	}
	s.checks.set(rulesLoaded, true)
	return nil
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
	for _, w := range config.Warnings {
		log.Warn("rules", "at", fmt.Sprintf("%s:%d:%d", w.File, w.Line, w.Column), "warning", w.Message)
	}
	return config, nil
}
