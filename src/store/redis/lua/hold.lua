-- KEYS[1] the record. ARGV: token, whether an attempt that stops from now on is held ('1' or '0').
-- 1: marked, 0: not this owner's.
local state, token = unpack(redis.call('HMGET', KEYS[1], 's', 't'))
if state ~= 'r' or token ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'h', ARGV[2])
return 1
