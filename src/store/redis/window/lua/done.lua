-- KEYS[1] the message. ARGV: token, for how many ms it is remembered.
-- 1: done, now or by an earlier copy of this call. 0: not this owner's any more.
local value = redis.call('GET', KEYS[1])
if value == 'd' .. ARGV[1] then return 1 end
if value ~= 'p' .. ARGV[1] then return 0 end
redis.call('SET', KEYS[1], 'd' .. ARGV[1], 'PX', ARGV[2])
return 1
