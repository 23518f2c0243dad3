package rls

import "testing"

const quotas = `
domain: shop
descriptors:
  - {key: one, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: two, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 2}}
  - {key: pair, quota_mode: true, limits: [{unit: day, requests_per_unit: 9, algorithm: gcra}, {unit: year, requests_per_unit: 1, algorithm: gcra}]}
  - {key: hard, rate_limit: {unit: year, requests_per_unit: 3}}
`

func TestQuotasDenyOnlyTogether(t *testing.T) {
	t.Parallel()
	f := startWith(t, inMemory(t), quotas, Options{})
	both := func(want string) {
		t.Helper()
		f.expect(t, want, descriptor("one=a"), descriptor("two=a"))
	}
	both("OK: OK 0, OK 1")
	both("OK: OVER_LIMIT 0, OK 0")
	both("OVER_LIMIT: OVER_LIMIT 0, OVER_LIMIT 0")
	f.expect(t, "OK: OK 0", descriptor("one=b")) // alone it denies by itself
	f.expect(t, "OVER_LIMIT: OVER_LIMIT 0", descriptor("one=b"))
}

func TestDeniedRequestIsChargedToNoQuota(t *testing.T) {
	t.Parallel()
	f := startWith(t, inMemory(t), quotas, Options{})
	f.expect(t, "OK: OK 0", withHits(descriptor("hard=a"), 3))
	f.expect(t, "OVER_LIMIT: OK 1, OK 2, OVER_LIMIT 0", descriptor("one=a"), descriptor("two=a"), descriptor("hard=a"))
	f.expect(t, "OK: OK 0, OK 1", descriptor("one=a"), descriptor("two=a"))
}

func TestQuotasThatAreAllOverChargeNobody(t *testing.T) {
	t.Parallel()
	f := startWith(t, inMemory(t), quotas, Options{})
	f.expect(t, "OK: OK 0, OK 0", descriptor("one=a"), withHits(descriptor("two=a"), 2))
	f.expect(t, "OVER_LIMIT: OVER_LIMIT 0, OVER_LIMIT 0, OK 3", descriptor("one=a"), descriptor("two=a"), descriptor("hard=a"))
	f.expect(t, "OK: OK 2", descriptor("hard=a"))
}

func TestQuotaThatIsOverOneOfItsLimitsIsChargedToNeither(t *testing.T) {
	t.Parallel()
	f := startWith(t, inMemory(t), quotas, Options{})
	f.expect(t, "OK: OK 0, OK 1", descriptor("pair=a"), descriptor("two=a"))
	f.expect(t, "OK: OVER_LIMIT 0, OK 0", descriptor("pair=a"), descriptor("two=a"))
	r := f.service.Rules().Rules()[2]
	daily := f.service.current.Load().rules[r].limits[0].limiter
	d, err := daily.Peek(t.Context(), r.Key(entriesOf("pair=a")))
	if err != nil || d.Remaining != 8 {
		t.Errorf("the limit a day has %d left, %v, want 8", d.Remaining, err)
	}
}

func TestQuotaSettingMakesEveryRuleOne(t *testing.T) {
	t.Parallel()
	f := startWith(t, inMemory(t), quotas, Options{Quota: true})
	f.expect(t, "OK: OK 0, OK 0", descriptor("one=a"), withHits(descriptor("hard=a"), 3))
	f.expect(t, "OK: OVER_LIMIT 0, OK 2", descriptor("one=a"), descriptor("hard=b"))
	f.expect(t, "OVER_LIMIT: OVER_LIMIT 0, OVER_LIMIT 0", descriptor("one=a"), descriptor("hard=a"))
	f.expect(t, "OK: OVER_LIMIT 0, OK -", descriptor("one=a"), descriptor("nobody=knows")) // which is never over
}

const replacing = `
domain: shop
descriptors:
  - {key: user, rate_limit: {unit: year, requests_per_unit: 1, name: user}}
  - {key: vip, rate_limit: {unit: year, requests_per_unit: 9, replaces: [{name: user}]}}
  - {key: staff, rate_limit: {unlimited: true, replaces: [{name: user}, {name: both}]}}
  - {key: both, limits: [{unit: day, requests_per_unit: 5, name: both}, {unit: year, requests_per_unit: 7, name: rest}]}
`

func TestReplacedLimitDoesNotCount(t *testing.T) {
	t.Parallel()
	f := startWith(t, inMemory(t), replacing, Options{})
	f.expect(t, "OK: OK -, OK 8", descriptor("user=a"), descriptor("vip=a"))
	f.expect(t, "OK: OK 7, OK -", descriptor("vip=a"), descriptor("user=a"))
	f.expect(t, "OK: OK 0", descriptor("user=a")) // it was never charged
	f.expect(t, "OVER_LIMIT: OVER_LIMIT 0", descriptor("user=a"))
	f.expect(t, "OK: OK -, OK -", descriptor("user=a"), descriptor("staff=a"))
}

func TestOneOfSeveralLimitsIsReplaced(t *testing.T) {
	t.Parallel()
	f := startWith(t, inMemory(t), replacing, Options{})
	f.expect(t, "OK: OK 4", descriptor("both=a"))
	f.expect(t, "OK: OK 5, OK -", descriptor("both=a"), descriptor("staff=a"))
	f.expect(t, "OK: OK 3", descriptor("both=a"))
}

func TestShadowSettingLetsEverythingPass(t *testing.T) {
	t.Parallel()
	f := startWith(t, inMemory(t), quotas, Options{Shadow: true})
	f.expect(t, "OK: OK 0, OK 2", descriptor("one=a"), descriptor("hard=a"))
	f.expect(t, "OK: OVER_LIMIT 0, OK 1", descriptor("one=a"), descriptor("hard=a")) // and charges, since it passes
}
