-- GCRA and LeakyBucket. Go twin: internal/algorithm/gcra.go. O(1).
--
-- KEYS[1] the theoretical arrival time (TAT) in store time (µs since 1600000000 s):
--         an integer, or micros:remainder:parts where an interval is not in whole µs.
-- ARGV    1 cost, 2 tolerance, 3 bound of the TAT ahead of now, all in whole µs; where
--         they have fractions, also 4 the cost's and 5 the tolerance's remainder, 6 the
--         parts of a µs, 7 the bound's remainder; for a partial ask 1 and 4 are of one
--         unit, and there are 8 the units asked, 9 and 10 the tolerance for more than one.
-- Returns {now, ahead [, remainder [, units]]}: how far the TAT after the decision is
--         ahead of now; -1-ahead where denied. Where all is in whole µs a decision is
--         a string instead: the seconds and µs of TIME, and ahead, with spaces between.

--@check
local inc, tol, bound = A[i+1] + 0, A[i+2] + 0, A[i+3] + 0
local incr, tolr, boundr, den = 0, 0, 0, nil
if m > 3 then incr, tolr, den, boundr = A[i+4] + 0, A[i+5] + 0, A[i+6] + 0, A[i+7] + 0 end
local tat, d, r = nil, 0, 0
if s then
  tat = tonumber(s)
  if tat then
    d = tat - now
  else
    local x, y, z = string.match(s, '^(-?%d+):(%d+):(%d+)$')
    if not x then error('WEIRSTATE not an arrival time') end
    d = x - now
    if den and z + 0 == den then r = y + 0 elseif y + 0 > 0 then d = d + 1 end
  end
  if d ~= d then error('WEIRSTATE not an arrival time') end
  if d < 0 then d, r = 0, 0 end
end
local shrunk = d > bound or d == bound and r > boundr
if shrunk then d, r = bound, boundr end
local e, f = d + inc, r + incr
if den and f >= den then e, f = e + 1, f - den end
local ok = e < tol or e == tol and f <= tolr
local units = 1
if ok and m > 7 then
  local lo, hi, tola, tolb = 1, A[i+8] + 0, A[i+9] + 0, A[i+10] + 0
  while lo < hi do -- the most units within the tolerance: at most 32 rounds
    local k = math.ceil((lo + hi) / 2)
    local kr = k * incr
    local rem = math.fmod(kr, den)
    local x, y = d + k * inc + (kr - rem) / den, r + rem
    if y >= den then x, y = x + 1, y - den end
    if x < tola or x == tola and y <= tolb then lo, e, f = k, x, y else hi = k - 1 end
  end
  units = lo
end

--@commit
-- The TTL reaches to the next multiple of 2^23 µs after the TAT, whatever the limit: so
-- it is renewed only when the TAT crosses one, and a limit that changes needs no care.
-- A number becomes text most cheaply where it is an argument already, then by %d, which
-- is safe below 2^31 whatever the server's word.
if ok or shrunk then
  if not ok then e, f = d, r end
  local to = now + e
  local q = to - to % 8388608
  if tat and not den and tat >= q and tat < q + 8388608 then
    local by = to - tat
    redis.call('INCRBY', key, by == inc and A[i+1] or string.format(by < 2147483648 and '%d' or '%.0f', by))
  else
    local v = den and string.format('%.0f:%.0f:%.0f', to, f, den) or string.format('%.0f', to)
    redis.call('SET', key, v, 'PX', math.ceil((q + 8388608 - now) / 1000) + slack)
  end
end

--@tell
return ok, units, now, e, f, 0, d, r

--@encode
local after, ttl
if ok or shrunk then
  local to, rest = now + (ok and e or d), ok and f or r
  after = den and string.format('%.0f:%.0f:%.0f', to, rest, den) or string.format('%.0f', to)
  ttl = math.ceil(((math.floor(to / 8388608) + 1) * 8388608 - now) / 1000) + slack
end
return ok, units, now, e, f, 0, d, r, after, ttl

--@reply
if not den then
  local v = ok and e or -1 - d
  v = v == inc and A[i+1] or string.format(v < 2147483648 and v > -2147483648 and '%d' or '%.0f', v)
  return t[1] .. ' ' .. t[2] .. ' ' .. v -- a quarter of what an array costs
end
return {now, ok and e or -1 - d, ok and f or r, units}

--@peek
return {now, ok and d or -1 - d, r}
