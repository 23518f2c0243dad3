-- SlidingWindow. Go twin: internal/algorithm/window.go. O(1).
--
-- KEYS[1] start:current:previous, the start of the window in store time (µs since
--         1600000000 s) and the counts of it and of the one before.
-- ARGV    as window.lua's.
-- Returns now, current, previous [, units], current after the decision, -1-current where
--         denied; now is the window's start if the clock has stepped back. A string or an
--         array as window.lua's.

--@check
local clock, units = now, 0
local n, c, period = A[i+1] + 0, A[i+2] + 0, A[i+3] + 0
local b, cur, prev = nil, 0, 0
if s then
  local x, y, z = string.match(s, '^(-?%d+):(%d+):(%d+)$')
  if not x then error('WEIRSTATE not a sliding window') end
  b, cur, prev = x + 0, y + 0, z + 0
  if b > now then now = b end
end
local into = math.fmod(now + A[i+4], period)
if into < 0 then into = into + period end
local start = now - into
if b and b < start then
  prev = b >= start - period and cur or 0
  cur = 0
end
-- What the window before still counts: previous * left / period rounded up. Both sides
-- pass 2^53, so the guess is checked in limbs of 24 bits.
local share = 0
if prev > 0 then
  local left = period - into
  local function mul(a, x) -- a < 2^33, x < 2^48: three limbs
    local a0, x0 = a % 16777216, x % 16777216
    local a1, x1 = (a - a0) / 16777216, (x - x0) / 16777216
    local l0 = a0 * x0
    local l1 = a1 * x0 + a0 * x1 + math.floor(l0 / 16777216)
    return a1 * x1 + math.floor(l1 / 16777216), l1 % 16777216, l0 % 16777216
  end
  local p2, p1, p0 = mul(prev, left)
  share = math.max(math.floor(prev * (left / period)) - 1, 0)
  while true do
    local q2, q1, q0 = mul(share, period)
    if p2 < q2 or p2 == q2 and (p1 < q1 or p1 == q1 and p0 <= q0) then break end
    share = share + 1
  end
end
local free = n - cur - share
if c == 0 then units = 0 elseif c <= free then units = c elseif m > 4 and free > 0 then units = free end
local ok = units > 0 or c == 0 and free > 0

--@commit
if units > 0 then
  redis.call('SET', key, string.format('%.0f:%.0f:%.0f', start, cur + units, prev),
    'PX', math.ceil((start + 2 * period - clock) / 1000) + slack)
end

--@tell
return ok, units, now, cur + units, prev, 0, cur, prev

--@encode
local after, ttl
if units > 0 then
  after = string.format('%.0f:%.0f:%.0f', start, cur + units, prev)
  ttl = math.ceil((start + 2 * period - clock) / 1000) + slack
end
return ok, units, now, cur + units, prev, 0, cur, prev, after, ttl

--@reply
local v = ok and cur + units or -1 - cur
if now ~= clock then return {now, v, prev, units} end
return t[1] .. ' ' .. t[2] .. ' ' .. v .. ' ' .. prev .. ' ' .. units

--@peek
return {now, ok and cur or -1 - cur, prev}
