-- KEYS[1] the message. ARGV: token, for how many ms from now it may be processed.
-- 1: prolonged. 0: not this owner's any more.
if redis.call('GET', KEYS[1]) ~= 'p' .. ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
