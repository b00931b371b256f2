-- KEYS[1] the record. ARGV: token. Its lease ends now. 1: ended, 0: not this owner's.
local state, token = unpack(redis.call('HMGET', KEYS[1], 's', 't'))
if state ~= 'r' or token ~= ARGV[1] then return 0 end
local time = redis.call('TIME')
redis.call('HSET', KEYS[1], 'l', time[1] * 1000000 + time[2])
return 1
