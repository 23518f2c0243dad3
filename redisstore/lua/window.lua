-- FixedWindow. Go twin: internal/algorithm/window.go. O(1).
--
-- KEYS[1] start:count:period, the start of the window in store time (µs since 1600000000
--         s). The period is there to tell that the TTL is this window's.
-- ARGV    1 the limit, 2 the cost (0 is a peek), 3 the period in µs, 4 how far the start
--         of store time is into a window, 5 present where fewer units will do.
-- Returns now, count [, units]: the count after the decision, -1-count where denied;
--         now is the window's start if the clock has stepped back behind it. It is a
--         string that begins with TIME's two numbers, unless the clock has.

--@check
local clock, units = now, 0
local n, c, period = A[i+1] + 0, A[i+2] + 0, A[i+3] + 0
local b, count, x, y, z = nil, 0, nil, nil, nil
if s then
  x, y, z = string.match(s, '^(-?%d+):(%d+):(%d+)$')
  if not x then error('WEIRSTATE not a window') end
  b, count = x + 0, y + 0
  if b > now then now = b end
end
local into = math.fmod(now + A[i+4], period)
if into < 0 then into = into + period end
local start = now - into
if not b or b < start then count = 0 end
local kept = b == start and z == A[i+3]
local free = n - count
if c == 0 then units = 0 elseif c <= free then units = c elseif m > 4 and free > 0 then units = free end
local ok = units > 0 or c == 0 and free > 0

--@commit
if units > 0 then
  if kept then -- a count is far below 1e14, from where .. loses digits
    redis.call('SET', key, x .. ':' .. count + units .. ':' .. z, 'KEEPTTL')
  else
    redis.call('SET', key, string.format('%.0f:%.0f:%.0f', start, count + units, period),
      'PX', math.ceil((start + period - clock) / 1000) + slack)
  end
end

--@tell
return ok, units, now, count + units, 0, 0, count, 0

--@encode
local after, ttl
if units > 0 then
  after = string.format('%.0f:%.0f:%.0f', start, count + units, period)
  ttl = not kept and math.ceil((start + period - clock) / 1000) + slack
end
return ok, units, now, count + units, 0, 0, count, 0, after, ttl

--@reply
local v = ok and count + units or -1 - count
if now ~= clock then return {now, v, units} end
return t[1] .. ' ' .. t[2] .. ' ' .. v .. ' ' .. units

--@peek
return {now, ok and count or -1 - count}
