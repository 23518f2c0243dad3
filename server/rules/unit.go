package rules

import (
	"fmt"
	"strings"
	"time"
)

// Unit is a period as the protocol and the configuration name it. The numbers are
// those of envoy.service.ratelimit.v3.RateLimitResponse.RateLimit.Unit.
type Unit uint8

// The units. A month is 30 days and a year 365; windows start at multiples of them
// since 1970-01-01 00:00 UTC, so a week starts on a Thursday.
const (
	UnitUnknown Unit = iota
	UnitSecond
	UnitMinute
	UnitHour
	UnitDay
	UnitMonth
	UnitYear
	UnitWeek
)

const day = 24 * time.Hour

var units = [...]struct {
	name   string
	period time.Duration
}{
	{"unknown", 0},
	{"second", time.Second},
	{"minute", time.Minute},
	{"hour", time.Hour},
	{"day", day},
	{"month", 30 * day},
	{"year", 365 * day},
	{"week", 7 * day},
}

// unitNames are what configuration may write, in order of length.
var unitNames = []string{"second", "minute", "hour", "day", "week", "month", "year"}

// parseUnit returns the unit of that name in any case, or false.
func parseUnit(name string) (Unit, bool) {
	for u := UnitSecond; int(u) < len(units); u++ {
		if strings.EqualFold(name, units[u].name) {
			return u, true
		}
	}
	return UnitUnknown, false
}

// inUnits says a period as a number of the longest unit up to a day that divides it:
// what every proxy knows. What is not in whole seconds is UnitUnknown.
func inUnits(period time.Duration) (u Unit, multiplier uint32) {
	for _, u := range []Unit{UnitDay, UnitHour, UnitMinute, UnitSecond} {
		if period%u.Period() == 0 {
			return u, uint32(period / u.Period())
		}
	}
	return UnitUnknown, 0
}

// String returns the unit as configuration writes it: "minute".
func (u Unit) String() string {
	if int(u) < len(units) {
		return units[u].name
	}
	return fmt.Sprintf("unit(%d)", uint8(u))
}

// Period returns how long the unit is, or 0 for UnitUnknown and what is no unit.
func (u Unit) Period() time.Duration {
	if int(u) < len(units) {
		return units[u].period
	}
	return 0
}
