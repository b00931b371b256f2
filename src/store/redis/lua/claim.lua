-- KEYS[1] the record. ARGV: token, lease, retention, held from the start, longest answer to send along,
-- scope, key, endpoint, fingerprint, then the fingerprints under earlier settings. Times are microseconds.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local state, token, fingerprint, lease_ends, held, attempt, fence, accepted, ends =
  unpack(redis.call('HMGET', KEYS[1], 's', 't', 'f', 'l', 'h', 'n', 'e', 'a', 'x'))
lease_ends, ends = tonumber(lease_ends) or 0, tonumber(ends) or 0

-- The first of the asker's fingerprints that has the stored profile (8 bytes) is compared.
local function compare()
  for i = 9, #ARGV do
    if string.sub(ARGV[i], 1, 8) == string.sub(fingerprint, 1, 8) then
      return ARGV[i] == fingerprint and 'same' or 'different'
    end
  end
  return 'other profile'
end

-- A question whose claim was released has been answered: this is a late copy of it.
if state == 'f' and token == ARGV[1] then return { 2 } end

local live = state == 'r' and math.max(lease_ends, ends) > now or state == 'c' and ends > now
local compared = live and compare() or 'same'
local number, since = 1, now
if live then
  if state == 'r' and token == ARGV[1] then
    -- This very question has claimed it, and the reply was lost.
    lease_ends = now + ARGV[2]
    redis.call('HSET', KEYS[1], 'l', lease_ends)
    redis.call('PEXPIREAT', KEYS[1], math.ceil(math.max(ends, now + 2 * ARGV[2]) / 1000))
    return { 1, tonumber(fence), tonumber(attempt), compared }
  end
  if not (state == 'r' and lease_ends <= now and held ~= '1' and compared ~= 'different') then
    local answer, length = false, 0
    if state == 'c' and compared ~= 'different' then
      length = redis.call('HSTRLEN', KEYS[1], 'b')
      if length <= tonumber(ARGV[5]) then answer = redis.call('HGET', KEYS[1], 'b') end
    end
    return { 0, state, lease_ends <= now and 1 or 0, held == '1' and 1 or 0, fingerprint, token, length, answer }
  end
  number, since = attempt + 1, tonumber(accepted)
end

-- Numbers go to redis.call as they are: `..` would cut them to 14 digits. The first write is one that a full server
-- refuses, so that a refusal leaves the record as it was.
local next_fence = math.max(now, (tonumber(fence) or 0) + 1)
ends = since + ARGV[3]
redis.call('HSET', KEYS[1], 's', 'r', 't', ARGV[1], 'f', ARGV[9], 'l', now + ARGV[2], 'h', ARGV[4], 'n', number,
  'e', next_fence, 'a', since, 'x', ends, 'z', ARGV[6], 'k', ARGV[7], 'p', ARGV[8])
if state then redis.call('HDEL', KEYS[1], 'b', 'u', 'o') end
redis.call('PEXPIREAT', KEYS[1], math.ceil(math.max(ends, now + 2 * ARGV[2]) / 1000))
return { 1, next_fence, number, compared }
