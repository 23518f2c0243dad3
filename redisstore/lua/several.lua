-- Several asks in one step: all of the group are charged, or none. O(number of asks).
--
-- KEYS[j] the state of ask j; the same key may stand more than once.
-- ARGV    for each ask: its kind (g, f, w, l as the state's; upper case where the ask
--         stands alone; p behind it for a peek, x for a cost above the capacity), the
--         number of arguments, and the arguments of its algorithm, of a peek for p and x.
-- Returns a string, which costs a fraction of an array: the seconds and microseconds of
--         the clock, and for each ask verdict, units, clock, x, y, z. Verdict is 1 allowed,
--         0 denied, 2 held back by another; clock is how far behind its state's time the
--         clock is; x, y, z are as the algorithm's own reply has them, without signs.
--
-- The check of each kind that is asked about stands before this; the part of the log
-- only where it is.

--@start
local A, base, tent, fixed, order = ARGV, {}, {}, {}, {}
local reply, asks, verdicts = {}, {}, {}

-- Keeps what to tell of an ask. The counts are small but for those of a TAT and a log.
local function tell(a, verdict, units, at, x, y, z)
  verdicts[a.j] = verdict
  reply[a.j] = string.format('%d %.0f %.0f %.0f %.0f %.0f', verdict, units, at - now, x, y, z)
end

local function raw(key)
  if base[key] == nil then base[key] = redis.call('GET', key) end
  return base[key]
end

--@log
local function log(key)
  if base[key] == nil then base[key] = log_open(key) end
  return base[key]
end

local function ask_log(a)
  local L = log(a.key)
  local ok, units, at, live, newest, blocker, dead, clock = check_l(L, now, A, a.i, a.m)
  if ok and units > 0 then
    if L.add == 0 then order[#order + 1] = a.key end
    L.add, L.at = L.add + units, at
    L.after = {dead, at, clock, A[a.i+1] + 0, A[a.i+3] + 0, math.max(A[a.i+4] + 0, L.after and L.after[6] or 0)}
    live, newest = live + units, at
  end
  ok = ok and not a.never
  tell(a, ok and 1 or 0, units, at, live, newest, blocker)
  return ok
end

-- What an ask that would have passed is told when another denies: the log untouched.
local function hold_back_log(a)
  local _, _, at, live, newest = check_l(log(a.key), now, A, a.i, a.m)
  tell(a, 2, 0, at, live, newest, 0)
end

--@rest
local function ask_state(a)
  local t = tent[a.key]
  local ok, units, at, x, y, z, x0, y0, after, ttl = check[a.kind](t and t[1] or raw(a.key), now, A, a.i, a.m)
  if a.kind == 'g' and a.m < 8 then units = a.peek and 0 or 1 end
  if ok and after and not a.peek then
    if not t then order[#order + 1] = a.key end
    tent[a.key] = {after, ttl or t and t[2]}
  elseif after and not ok and not a.peek then -- a limit that shrank
    base[a.key], fixed[a.key] = after, ttl
  end
  ok = ok and not a.never
  if ok and not a.peek then tell(a, 1, units, at, x, y, z) else tell(a, ok and 1 or 0, 0, at, x0, y0, 0) end
  return ok
end

local function ask(a) if a.kind == 'l' then return ask_log(a) end return ask_state(a) end

local function hold_back(a)
  if a.kind == 'l' then return hold_back_log(a) end
  local _, _, at, _, _, _, x0, y0 = check[a.kind](raw(a.key), now, A, a.i, a.m)
  tell(a, 2, 0, at, x0, y0, 0)
end

local i = 1
for j = 1, #KEYS do
  local kind, m = A[i], A[i+1] + 0
  local low = string.lower(kind)
  local how = string.sub(kind, 2)
  asks[j] = {j = j, key = KEYS[j], kind = string.sub(low, 1, 1), peek = how ~= '', never = how == 'x', alone = low ~= kind, i = i + 1, m = m}
  i = i + 2 + m
end
local denies = false
for _, a in ipairs(asks) do
  if not a.alone and not ask(a) then denies = true end
end
if denies then
  for _, key in ipairs(order) do
    tent[key] = nil
    if type(base[key]) == 'table' then base[key].add, base[key].after = 0, nil end
  end
  order = {}
  for _, a in ipairs(asks) do
    if not a.alone and verdicts[a.j] == 1 then hold_back(a) end
  end
end
for _, a in ipairs(asks) do
  if a.alone then ask(a) end
end
for key, ttl in pairs(fixed) do
  if not tent[key] then redis.call('SET', key, base[key], 'PX', ttl) end
end
for _, key in ipairs(order) do
  if tent[key] and not tent[key][2] then
    redis.call('SET', key, tent[key][1], 'KEEPTTL')
  elseif tent[key] then
    redis.call('SET', key, tent[key][1], 'PX', tent[key][2])
  else
    local L = base[key]
    log_commit(L, L.after[1], L.after[2], L.after[3], L.after[4], L.after[5], L.after[6])
  end
end
return t[1] .. ' ' .. t[2] .. ' ' .. table.concat(reply, ' ')
