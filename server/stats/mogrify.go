package stats

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
)

// Mogrifier makes a name and tags for dogstatsd of each name that its pattern matches. In
// Name and the tags' values $1 stands for what the first group matched, $0 for all that the
// pattern matched. What is matched need not be the whole name, but Name replaces all of it.
type Mogrifier struct {
	Label   string            // what USE_DOG_STATSD_MOGRIFIERS calls it
	Pattern string            // DOG_STATSD_MOGRIFIER_<Label>_PATTERN, a regular expression as RE2 has them
	Name    string            // DOG_STATSD_MOGRIFIER_<Label>_NAME
	Tags    map[string]string // DOG_STATSD_MOGRIFIER_<Label>_TAGS
}

// mogrifiers are Mogrifiers that have been checked.
type mogrifiers []mogrifier

type mogrifier struct {
	pattern *regexp.Regexp
	name    string
	tags    []tag // sorted by their keys
}

type tag struct{ key, value string }

var group = regexp.MustCompile(`\$\d+`)

// newMogrifiers returns an error that names everything that is wrong.
func newMogrifiers(from []Mogrifier) (mogrifiers, error) {
	var all mogrifiers
	var errs []error
	for _, m := range from {
		checked, err := m.check()
		if err != nil {
			errs = append(errs, err)
		}
		all = append(all, checked)
	}
	return all, errors.Join(errs...)
}

func (m *Mogrifier) check() (mogrifier, error) {
	setting := "DOG_STATSD_MOGRIFIER_" + m.Label
	var errs []error
	pattern, err := regexp.Compile(m.Pattern)
	switch {
	case m.Pattern == "":
		errs = append(errs, fmt.Errorf("%s_PATTERN is empty: write a regular expression", setting))
	case err != nil:
		errs = append(errs, fmt.Errorf("%s_PATTERN %q: %w", setting, m.Pattern, err))
	}
	template := func(part, text string) {
		if text == "" {
			errs = append(errs, fmt.Errorf("%s is empty: write text, in which $1 stands for the first group", setting+part))
			return
		}
		for _, g := range group.FindAllString(text, -1) {
			if n, err := strconv.Atoi(g[1:]); pattern != nil && (err != nil || n > pattern.NumSubexp()) {
				errs = append(errs, fmt.Errorf("%s %q: the pattern has %d groups, not %s", setting+part, text, pattern.NumSubexp(), g))
			}
		}
	}
	template("_NAME", m.Name)
	checked := mogrifier{pattern: pattern, name: m.Name}
	for _, key := range slices.Sorted(maps.Keys(m.Tags)) {
		if key == "" {
			errs = append(errs, fmt.Errorf("%s_TAGS: the tag of %q has no key: write key:value", setting, m.Tags[key]))
		}
		template("_TAGS "+key, m.Tags[key])
		checked.tags = append(checked.tags, tag{key, m.Tags[key]})
	}
	return checked, errors.Join(errs...)
}

// apply returns the name and tags that the first that matches makes of the name. Where none
// does, or nothing would be left of it, the name stays.
func (all mogrifiers) apply(name string) (string, []tag) {
	for _, m := range all {
		groups := m.pattern.FindStringSubmatch(name)
		if groups == nil {
			continue
		}
		fill := func(template string) string {
			return group.ReplaceAllStringFunc(template, func(g string) string {
				n, _ := strconv.Atoi(g[1:]) // checked
				return groups[n]
			})
		}
		var tags []tag
		for _, t := range m.tags {
			tags = append(tags, tag{t.key, fill(t.value)})
		}
		return cmp.Or(fill(m.name), name), tags
	}
	return name, nil
}
