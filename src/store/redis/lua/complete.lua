-- KEYS[1] the record. ARGV: token, retention, least time to keep it, status, answer.
-- 1: recorded, now or by an earlier copy of this call. 0: not this owner's.
local state, token, accepted = unpack(redis.call('HMGET', KEYS[1], 's', 't', 'a'))
if token ~= ARGV[1] then return 0 end
if state == 'c' then return 1 end
if state ~= 'r' then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local ends = math.max(accepted + ARGV[2], now + ARGV[3])
redis.call('HSET', KEYS[1], 's', 'c', 'x', ends, 'u', ARGV[4], 'b', ARGV[5])
redis.call('HDEL', KEYS[1], 'l', 'h')
redis.call('PEXPIREAT', KEYS[1], math.ceil(ends / 1000))
return 1
