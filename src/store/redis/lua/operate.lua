-- KEYS[1] the record. ARGV: 'release', 'settle' or 'forget', the token that the operator saw, a new token; to settle,
-- retention, least time to keep it, status and answer; to forget, for how many ms the free record is remembered
-- and the state that the operator saw.
-- 1: done, now or by an earlier copy of this call. 2: an attempt is running. 0: not the record that was seen.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local state, token, lease_ends, held, accepted, ends, before, answer =
  unpack(redis.call('HMGET', KEYS[1], 's', 't', 'l', 'h', 'a', 'x', 'o', 'b'))
lease_ends, ends = tonumber(lease_ends) or 0, tonumber(ends) or 0
local lapsed = state == 'r' and lease_ends <= now
if not (state == 'r' and math.max(lease_ends, ends) > now or state == 'c' and ends > now) then return 0 end
if token ~= ARGV[2] then
  local repeated = before == ARGV[2] and (ARGV[1] == 'release' and lapsed and held == '0'
    or ARGV[1] == 'settle' and state == 'c' and answer == ARGV[7])
  return repeated and 1 or 0
end
if state == 'r' and not lapsed then return 2 end
if ARGV[1] == 'forget' then
  if state ~= ARGV[5] then return 0 end
  redis.call('HSET', KEYS[1], 's', 'f', 't', ARGV[3])
  redis.call('HDEL', KEYS[1], 'f', 'l', 'h', 'n', 'a', 'x', 'z', 'k', 'p', 'b', 'u', 'o')
  redis.call('PEXPIRE', KEYS[1], ARGV[4])
  return 1
end
if state ~= 'r' then return 0 end
-- A new token: the attempt that stopped has no say any more, should it come back.
if ARGV[1] == 'release' then
  redis.call('HSET', KEYS[1], 'h', '0', 't', ARGV[3], 'o', token)
  return 1
end
ends = math.max(accepted + ARGV[4], now + ARGV[5])
redis.call('HSET', KEYS[1], 's', 'c', 'x', ends, 'u', ARGV[6], 'b', ARGV[7], 't', ARGV[3], 'o', token)
redis.call('HDEL', KEYS[1], 'l', 'h')
redis.call('PEXPIREAT', KEYS[1], math.ceil(ends / 1000))
return 1
