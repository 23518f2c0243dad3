-- Gives units back, under any algorithm. Go twin: internal/algorithm/refund.go.
-- O(log r + b) for r receipts and at most 66 buckets; O(n) bytes copied for a log.
--
-- KEYS[1] the state that was charged. KEYS[2] the ledger of refunds, a sorted set:
--         receipts used, by when they can matter no more (µs since 1970), and what was
--         moved in each bucket of time, as s:end:until by minus the µs moved; and by
--         reset when the key was reset.
-- ARGV    1 kind (g, q for a LeakyBucket, f, w, l), 2 units, 3 the receipt, 4 when they
--         were taken, 5 the mark (when the key would be as new but for later asks), 6 how
--         long a receipt can matter, 7 the length of a bucket; then for g and q 8 the
--         interval in whole µs, 9 its remainder, 10 the parts of a µs; for the others 8
--         the period, 9 how far the start of store time is into a window.
--         Times are store time in µs unless said otherwise.
-- Returns {units, us, rem}: the units that came back, or for g and q how far the arrival
--         time moved back, in µs and parts.

local key, ledger, kind = KEYS[1], KEYS[2], ARGV[1]
local g, receipt, at, mark = ARGV[2] + 0, ARGV[3], ARGV[4] + 0, ARGV[5] + 0
local horizon, width = ARGV[6] + 0, ARGV[7] + 0
local epoch = 1600000000000000
if now < at then now = at end
if mark <= now then return {0, 0, 0} end
local reset = redis.call('ZSCORE', ledger, 'reset')
if reset and at + epoch <= tonumber(reset) then return {0, 0, 0} end
if redis.call('ZSCORE', ledger, receipt) then return {0, 0, 0} end
if redis.call('ZCOUNT', ledger, '(' .. string.format('%.0f', now + epoch), '+inf') >= 1024 then return {0, 0, 0} end

local buckets, old = {}, {} -- those that still matter, and those that do not
local members = redis.call('ZRANGEBYSCORE', ledger, '-inf', '(0', 'WITHSCORES')
for i = 1, #members, 2 do
  local last, till = string.match(members[i], '^s:(-?%d+):(-?%d+)$')
  if till + 0 > now then
    buckets[#buckets + 1] = {last = last + 0, till = till + 0, moved = -members[i+1], member = members[i]}
  else
    old[#old + 1] = members[i]
  end
end
local back, moved, rest, write = 0, 0, 0, nil

local function give_tat(s)
  local us, v, den = ARGV[8] + 0, ARGV[9] + 0, ARGV[10] + 0
  local a, b = s, 0
  local x, y, z = string.match(s, '^(-?%d+):(%d+):(%d+)$')
  if x then
    a = x
    if z + 0 == den then b = y + 0 elseif y + 0 > 0 then a = x + 1 end
  end
  a = tonumber(a)
  if not a then error('WEIRSTATE not an arrival time') end
  -- what the units take: all that can move
  local gv = g * v
  local gy = math.fmod(gv, den)
  local gx = g * us + (gv - gy) / den
  -- the bound: max(gT - (now - at), mark - now - S, 0), or for a queue's last place mark - now
  local bx, by = 0, 0
  local left = mark - now - (den > 1 and 1 or 0) -- the mark was rounded up
  if kind == 'q' then
    if a + (b > 0 and 1 or 0) ~= mark then return end
    bx = left
  else
    local later = 0
    for _, b in ipairs(buckets) do
      if b.last > at then later = later + b.moved end
    end
    bx, by = gx - (now - at), gy
    if left - later > bx then bx, by = left - later, 0 end
  end
  if gx < bx or gx == bx and gy < by then bx, by = gx, gy end
  -- never below now: what was earned again is not given again
  if a - now < bx or a - now == bx and b < by then bx, by = a - now, b end
  if bx < 0 or bx == 0 and by == 0 then return end
  back, moved, rest = 1, bx, by
  a, b = a - bx, b - by
  if b < 0 then a, b = a - 1, b + den end
  write = den > 1 and string.format('%.0f:%.0f:%.0f', a, b, den) or string.format('%.0f', a)
end

local function start_of(t, period, into)
  local e = math.fmod(t + into, period)
  if e < 0 then e = e + period end
  return t - e
end

local function give_window(s)
  local period, into = ARGV[8] + 0, ARGV[9] + 0
  local x, y, z = string.match(s, '^(-?%d+):(%d+):(%d+)$')
  if not x then error('WEIRSTATE not a window') end
  local start, cur, prev = x + 0, y + 0, z + 0 -- of a fixed window the third is its period
  local here = start_of(math.max(now, start), period, into)
  if start < here then
    if kind == 'w' then prev = start >= here - period and cur or 0 end
    cur = 0
  end
  if at >= here then
    back = math.min(g, cur)
    cur = cur - back
  elseif kind == 'w' and at >= here - period then
    back = math.min(g, prev)
    prev = prev - back
  end
  write = string.format('%.0f:%.0f:%.0f', here, cur, prev)
end

local function give_log()
  local L = log_open(key)
  if L.n == 0 then return end
  local first = log_dead(L, at - 1)
  local past = log_dead(L, at)
  back = math.min(g, past - first)
  if back == 0 then return end
  if back == L.n then redis.call('DEL', key) return end
  local bytes = log_bytes(L, 0, past - back) .. log_bytes(L, past, L.n - past)
  local n = L.n - back
  -- entries are told apart by the newest: it may only move back to one that is kept
  if past == L.n then L.last = log_time(L, bytes, n - 1) end
  log_rewrite(L, bytes, n, L.cap)
end

if kind == 'l' then
  give_log()
else
  local s = redis.call('GET', key)
  if not s then return {0, 0, 0} end
  if kind == 'g' or kind == 'q' then give_tat(s) else give_window(s) end
  if back > 0 then redis.call('SET', key, write, 'KEEPTTL') end
end
if back == 0 then return {0, 0, 0} end

redis.call('ZREMRANGEBYSCORE', ledger, '(0', string.format('%.0f', now + epoch))
if reset then redis.call('ZADD', ledger, reset, 'reset') end
for _, member in ipairs(old) do redis.call('ZREM', ledger, member) end
redis.call('ZADD', ledger, string.format('%.0f', mark + epoch), receipt)
if moved > 0 or rest > 0 then
  local last = now - math.fmod(now + epoch, width) + width -- buckets are aligned to 1970
  local till, sum = last + horizon, moved + (rest > 0 and 1 or 0)
  for _, b in ipairs(buckets) do
    if b.last == last then
      till, sum = math.max(till, b.till), sum + b.moved
      redis.call('ZREM', ledger, b.member)
    end
  end
  redis.call('ZADD', ledger, string.format('%.0f', -sum), string.format('s:%.0f:%.0f', last, till))
end
local ttl = math.ceil(math.max(horizon + width, mark - now) / 1000) + slack
if redis.call('PTTL', ledger) < ttl then redis.call('PEXPIRE', ledger, ttl) end
return {back, moved, rest}
