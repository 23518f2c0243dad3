package settings_test

import (
	"math"
	"strings"
	"testing"

	"weir.dev/weir/server/settings"
)

// Whatever a setting says, it is taken within its bounds or named in the error.
func FuzzLoadTakesAValueWithinItsBoundsOrNamesIt(f *testing.F) {
	for i, tt := range all {
		f.Add(uint(i), tt.value)
		f.Add(uint(i), tt.bad)
	}
	f.Add(uint(0), "\x00\xff")
	f.Add(uint(1), strings.Repeat("9", 400))
	f.Fuzz(func(t *testing.T, index uint, value string) {
		name := all[index%uint(len(all))].name
		s, _, err := settings.Load(environment(name, value))
		if err != nil {
			if len(err.Error()) > 1000 {
				t.Errorf("%s: an error of %d bytes, want at most 1000", name, len(err.Error()))
			}
			return
		}
		if s.Listen.Port < 0 || s.Listen.Port > math.MaxUint16 || s.GRPC.MaxAge < 0 || s.Redis.Timeout < 0 || s.Stats.FlushInterval <= 0 ||
			!(s.Limiter.NearLimitRatio >= 0 && s.Limiter.NearLimitRatio <= 1) || s.Limiter.LocalCacheBytes < 0 || s.Limiter.ExpirationJitter < 0 {
			t.Errorf("%s=%q: taken beyond its bounds: %+v", name, value, s)
		}
	})
}
