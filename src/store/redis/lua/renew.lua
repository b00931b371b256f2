-- KEYS[1] the record. ARGV: token, lease. 1: renewed, 0: not this owner's.
local state, token, ends = unpack(redis.call('HMGET', KEYS[1], 's', 't', 'x'))
if state ~= 'r' or token ~= ARGV[1] then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
redis.call('HSET', KEYS[1], 'l', now + ARGV[2])
redis.call('PEXPIREAT', KEYS[1], math.ceil(math.max(tonumber(ends), now + 2 * ARGV[2]) / 1000))
return 1
