package main

import (
	"errors"
	"fmt"
	"log/slog"

	"weir.dev/weir/server/rules"
	"weir.dev/weir/server/source"
)

// rulesFiles returns the files that the rules are in, or nil if a management server has
// them.
func (o *serveOptions) rulesFiles(log *slog.Logger) *source.Files {
	switch set := o.compat; {
	case set == nil && o.xds != "", set != nil && set.Config.XDS:
		return nil
	case set == nil:
		return source.New(source.Options{Log: log}, o.config...)
	default:
		// Where the original watches the root, it takes the names that begin with the
		// directory's, a slash being a dot there.
		beside := set.Config.WatchRoot && set.Config.AppDirectory != ""
		return source.New(source.Options{AnyName: true, Beside: beside, Log: log}, o.config...)
	}
}

// load reads the rules for the first time. In compat the service starts without them, if
// need be, and waits for better ones; in weir's own mode the error says what is wrong. What
// a management server has is waited for in both.
func (s *server) load() (err error) {
	if s.opts.xds != "" && len(s.opts.config) > 0 {
		return errors.New("--config and --xds are both here: leave one of them out")
	}
	if s.files = s.opts.rulesFiles(s.log); s.files == nil {
		s.management, err = s.newManagement()
		return err
	}
	if s.opts.compat == nil && len(s.opts.config) == 0 {
		return fmt.Errorf("%w, or set WEIR_CONFIG", errNoConfig)
	}
	files, err := s.files.Read()
	if s.opts.compat != nil {
		if errors.Is(err, source.ErrNoFiles) { // no rules are rules, at the start
			s.log.Warn("there are no rules, so nothing is limited", "error", err)
			err = nil
		}
		s.take(files, err, inFile) // an error is logged, and counted
		return nil
	}
	if err != nil {
		return err
	}
	config, err := s.opts.parse(files)
	if err != nil {
		return fmt.Errorf("the rules have faults:\n%w", err)
	}
	s.logWarnings(config, inFile)
	return s.setRules(config)
}

// parse reads rules as the mode wants them.
func (o *serveOptions) parse(files []rules.File) (*rules.Config, error) {
	if o.compat == nil {
		return rules.Options{MergeDomains: o.mergeDomains}.Parse(files...)
	}
	return rules.Options{Compat: true, MergeDomains: o.compat.Config.MergeDomains}.Parse(files...)
}
