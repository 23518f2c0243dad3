-- Several asks in one step, as several.lua has them, for the usual question: each of
-- another key, all of the group, none a peek or of a log. O(number of asks).
--
-- A look at each tells whether all pass; then the same functions write. To look twice costs
-- less than to keep what a look found, in tables and in text.
--
-- The function of each kind that is asked about stands before this.

--@start
local A, check = ARGV, {}

--@rest
local denies, passes, states, from, reply, i = false, {}, {}, {}, {}, 1
for j = 1, #KEYS do
  local s, m = redis.call('GET', KEYS[j]), A[i+1] + 0
  states[j], from[j] = s, i
  passes[j] = check[A[i]](KEYS[j], s, now, i + 1, m, false)
  denies = denies or not passes[j]
  i = i + 2 + m
end
for j = 1, #KEYS do
  local i, verdict = from[j], 1
  -- What is denied writes too: a limit that shrank.
  local ok, units, at, x, y, z, x0, y0 = check[A[i]](KEYS[j], states[j], now, i + 1, A[i+1] + 0, not denies or not passes[j])
  if denies then verdict, units, x, y, z = ok and 2 or 0, 0, x0, y0, 0 end
  local small = x < 2147483648 and y < 2147483648 and z < 2147483648 and units < 2147483648 and at - now < 2147483648
  reply[j] = string.format(small and '%d %d %d %d %d %d' or '%d %.0f %.0f %.0f %.0f %.0f', verdict, units, at - now, x, y, z)
end
return t[1] .. ' ' .. t[2] .. ' ' .. table.concat(reply, ' ')
