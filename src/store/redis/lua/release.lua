-- KEYS[1] the record. ARGV: token, for how many ms the released record is remembered.
-- 1: free, now or by an earlier copy of this call. 0: not this owner's.
local state, token = unpack(redis.call('HMGET', KEYS[1], 's', 't'))
if token ~= ARGV[1] then return 0 end
if state == 'f' then return 1 end
if state ~= 'r' then return 0 end
-- Token and fence stay for a while: the next fence is larger whatever the clock does.
redis.call('HSET', KEYS[1], 's', 'f')
redis.call('HDEL', KEYS[1], 'f', 'l', 'h', 'n', 'a', 'x', 'z', 'k', 'p', 'b', 'u', 'o')
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
