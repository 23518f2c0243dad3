-- Forgets a key under every algorithm. O(length of what is forgotten).
--
-- KEYS    the states, and last the ledger of refunds (see refund.lua), which keeps when
--         this was: what was taken before is not given back.
-- ARGV    none, or in a replay its time: then nothing is kept, for nobody asks again.
-- Returns 0.

local longest = 0
for _, key in ipairs(KEYS) do longest = math.max(longest, redis.call('PTTL', key)) end
redis.call('UNLINK', unpack(KEYS))
if longest > 0 and #ARGV == 0 then
  local ledger = KEYS[#KEYS]
  redis.call('ZADD', ledger, string.format('%.0f', now + 1600000000000000), 'reset')
  redis.call('PEXPIRE', ledger, longest)
end
return 0
