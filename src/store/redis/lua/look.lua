-- KEYS[1] the record. The server's time, then the fields in the order of `entry.rs`.
local time = redis.call('TIME')
return { time[1] * 1000000 + time[2], redis.call('HMGET', KEYS[1], unpack(ARGV)) }
