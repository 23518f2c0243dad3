-- SlidingLog. Go twin: internal/algorithm/log.go. O(log n), and O(n) bytes copied when
-- the ring grows, by an eighth each time.
--
-- KEYS[1] a ring in a string. 29 bytes of head, big-endian: when the newest entry was
--         made and until when the TTL is known to reach (store time in µs, 8 bytes
--         each); the slot of the oldest entry, the number of entries, the number of
--         slots (4 each); the bytes of an entry (1). An entry is its time modulo
--         256^bytes, which is exact since no entry kept is a period older than the newest.
-- ARGV    1 the limit, 2 the cost (0 is a peek), 3 the period in µs, 4 the bytes that
--         an entry needs, 5 present where fewer units will do.
-- Returns {now, live, newest, blocker [, units]}: the entries that count after the
--         decision, -1-live where denied; blocker is the time of the entry that must go
--         before the ask can pass; now is the newest's time if the clock has stepped back.

--@library
local function log_open(key)
  local h = redis.call('GETRANGE', key, '0', '28')
  if h == '' then return {key = key, n = 0, cap = 0, w = 4, exp = 0, add = 0} end
  if #h < 29 then error('WEIRSTATE not a log') end
  local L = {key = key, add = 0}
  L.last, L.exp, L.head, L.n, L.cap, L.w = struct.unpack('>i8i8I4I4I4B', h)
  if L.w < 4 or L.w > 6 or L.n > L.cap or L.head >= L.cap then error('WEIRSTATE not a log') end
  L.mod = 256 ^ L.w
  return L
end

-- Where slot p begins. As text: a number would cost the server twice as much, and below
-- 2^31, as all of these are, %d is safe whatever its word.
local function log_at(L, p) return string.format('%d', 29 + p * L.w) end

-- The bytes of k entries from the i-th oldest on.
local function log_bytes(L, i, k)
  if k <= 0 then return '' end
  local p = (L.head + i) % L.cap
  local first = math.min(k, L.cap - p)
  local s = redis.call('GETRANGE', L.key, log_at(L, p), string.format('%d', 28 + (p + first) * L.w))
  if first < k then s = s .. redis.call('GETRANGE', L.key, '29', string.format('%d', 28 + (k - first) * L.w)) end
  return s
end

local function log_time(L, bytes, j)
  local x = struct.unpack('>I' .. L.w, bytes, j * L.w + 1)
  return L.last - (L.last - x) % L.mod
end

local function log_entry(L, i) return log_time(L, log_bytes(L, i, 1), 0) end

-- How many entries were made at or before cut: those at hand first, then by bisection.
local function log_dead(L, cut)
  if L.n == 0 or L.last <= cut then return L.n end
  local k = math.min(L.n, 8)
  local bytes = log_bytes(L, 0, k)
  for j = 0, k - 1 do
    if log_time(L, bytes, j) > cut then return j end
  end
  local lo, hi = k, L.n - 1
  while lo < hi do
    local mid = math.floor((lo + hi) / 2)
    if log_entry(L, mid) > cut then hi = mid else lo = mid + 1 end
  end
  return lo
end

local function log_head(L)
  return struct.pack('>i8i8I4I4I4B', L.last, L.exp, L.head, L.n, L.cap, L.w)
end

-- Writes the log anew: bytes are its entries, oldest first, in slots for cap.
local function log_rewrite(L, bytes, n, cap, ttl)
  L.head, L.n, L.cap = 0, n, cap
  local s = log_head(L) .. bytes .. string.rep('\0', cap * L.w - #bytes)
  if ttl then redis.call('SET', L.key, s, 'PX', ttl) else redis.call('SET', L.key, s, 'KEEPTTL') end
end

-- Forgets dead entries and adds L.add made at now.
local function log_commit(L, dead, now, clock, n, period, width)
  local keep, add = L.n - dead, L.add
  local count = keep + add
  local renew = now + period > L.exp
  local ttl
  if renew then
    L.exp = now + period + math.floor(period / 8)
    ttl = math.ceil((L.exp - clock) / 1000) + slack
  end
  if count > L.cap or width > L.w or keep == 0 then
    local bytes = log_bytes(L, dead, keep)
    if width > L.w then
      local wide = {}
      for j = 0, keep - 1 do wide[j + 1] = struct.pack('>I' .. width, log_time(L, bytes, j) % 256 ^ width) end
      bytes, L.w = table.concat(wide), width
    end
    L.last = now
    bytes = bytes .. string.rep(struct.pack('>I' .. L.w, now % 256 ^ L.w), add)
    local cap = math.max(count, math.min(n, count + math.floor(count / 8) + 7))
    if keep == 0 then cap = math.max(count, math.min(n, 8, L.cap > 0 and L.cap or 8)) end
    ttl = ttl or math.ceil((L.exp - clock) / 1000) + slack
    return log_rewrite(L, bytes, count, cap, ttl)
  end
  local x = struct.pack('>I' .. L.w, now % L.mod)
  local p = (L.head + L.n) % L.cap
  local first = math.min(add, L.cap - p)
  redis.call('SETRANGE', L.key, log_at(L, p), add == 1 and x or string.rep(x, first))
  if first < add then redis.call('SETRANGE', L.key, '29', string.rep(x, add - first)) end
  L.head, L.n, L.last = (L.head + dead) % L.cap, count, now
  redis.call('SETRANGE', L.key, '0', log_head(L))
  if ttl then redis.call('PEXPIRE', L.key, ttl) end
end

--@check
local clock, units, blocker = now, 0, 0
local n, c, period = A[i+1] + 0, A[i+2] + 0, A[i+3] + 0
local newest = L.add > 0 and L.at or L.last
if newest and newest > now then now = newest end
local dead = log_dead(L, now - period)
local live = L.n - dead + L.add
local free = n - live
if c == 0 then units = 0 elseif c <= free then units = c elseif m > 4 and free > 0 then units = free end
local ok = units > 0 or c == 0 and free > 0
if not ok then
  local want = (c == 0 or m > 4) and 1 or c
  local over = live + want - n
  if want <= n then blocker = dead + over <= L.n and log_entry(L, dead + over - 1) or now end
end

--@commit
if units > 0 then
  L.add = units
  log_commit(L, dead, now, clock, n, period, A[i+4] + 0)
end

--@encode
return ok, units, now, live, newest or 0, blocker, dead, clock

--@reply
return {now, ok and live + units or -1 - live, units > 0 and now or newest or 0, blocker, units}

--@peek
return {now, ok and live or -1 - live, newest or 0, blocker}
