package stats

import (
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"time"

	"github.com/prometheus/statsd_exporter/pkg/mapper"
	"go.yaml.in/yaml/v2"
)

//go:embed mapping.yaml
var defaultMapping string

// A summary allocates these at once.
const (
	maxAgeBuckets = 1000
	maxBufCap     = 1 << 20
)

// newMapping reads a mapping of statsd_exporter. What it would only trip over later, when a
// name matches, is an error too; what it does not know at all is logged and left out.
func newMapping(file, text string, log *slog.Logger) (*mapper.MetricMapper, error) {
	m := &mapper.MetricMapper{Logger: log}
	if err := m.InitFromYAMLString(text); err != nil {
		return nil, fmt.Errorf("mapping %s: %w", file, err)
	}
	warnOfUnknown(log, file, text)
	var errs []error
	for _, one := range m.Mappings {
		errs = append(errs, checkMapping(&one))
	}
	errs = append(errs, checkBuckets("defaults", m.Defaults.HistogramOptions.Buckets), checkSummary("defaults", &m.Defaults.SummaryOptions))
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("mapping %s: %w", file, err)
	}
	return m, nil
}

// warnOfUnknown logs fields that no mapping has: misspelt ones, as a rule.
func warnOfUnknown(log *slog.Logger, file, text string) {
	var strict struct {
		Defaults mapper.MapperConfigDefaults `yaml:"defaults"`
		Mappings []mapper.MetricMapping      `yaml:"mappings"`
	}
	if err := yaml.UnmarshalStrict([]byte(text), &strict); err != nil {
		log.Warn("the mapping has fields that do nothing", "file", file, "error", err)
	}
}

func checkMapping(m *mapper.MetricMapping) error {
	at := fmt.Sprintf("match %q", m.Match)
	var errs []error
	for label := range m.Labels {
		if label == "le" || label == "quantile" || strings.HasPrefix(label, "__") {
			errs = append(errs, fmt.Errorf("%s: label %q is Prometheus's own: write another", at, label))
		}
	}
	if m.HistogramOptions != nil {
		errs = append(errs, checkBuckets(at, m.HistogramOptions.Buckets))
	}
	if m.SummaryOptions != nil {
		errs = append(errs, checkSummary(at, m.SummaryOptions))
	}
	if m.Ttl < 0 {
		errs = append(errs, fmt.Errorf("%s: ttl %v: write a time above zero", at, m.Ttl))
	}
	return errors.Join(errs...)
}

func checkBuckets(at string, buckets []float64) error {
	for i, b := range buckets {
		if math.IsNaN(b) || i > 0 && b <= buckets[i-1] {
			return fmt.Errorf("%s: buckets %v: write numbers that rise", at, buckets)
		}
	}
	return nil
}

func checkSummary(at string, s *mapper.SummaryOptions) error {
	var errs []error
	for _, q := range s.Quantiles {
		if !(q.Quantile >= 0 && q.Quantile <= 1 && q.Error >= 0 && q.Error <= 1) {
			errs = append(errs, fmt.Errorf("%s: quantile %v with error %v: write numbers from 0 to 1", at, q.Quantile, q.Error))
		}
	}
	if s.MaxAge != 0 && s.MaxAge < time.Second {
		errs = append(errs, fmt.Errorf("%s: max_age %v: write at least 1s", at, s.MaxAge))
	}
	if s.AgeBuckets > maxAgeBuckets {
		errs = append(errs, fmt.Errorf("%s: age_buckets %d: write at most %d", at, s.AgeBuckets, maxAgeBuckets))
	}
	if s.BufCap > maxBufCap {
		errs = append(errs, fmt.Errorf("%s: buf_cap %d: write at most %d", at, s.BufCap, maxBufCap))
	}
	return errors.Join(errs...)
}
