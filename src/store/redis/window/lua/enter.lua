-- KEYS[1] the message. ARGV: token, for how many ms it may be processed. The value is one letter and a token:
-- p processed, d done, f freed.
-- { 1 }: the asker's. { 2, ms }: somebody else's for so long. { 0 }: done. { 3 }: a late copy of a question that has been
-- answered.
local value = redis.call('GET', KEYS[1])
if value then
  local state, token = string.sub(value, 1, 1), string.sub(value, 2)
  if state == 'd' then return { 0 } end
  if state == 'f' and token == ARGV[1] then return { 3 } end
  if state == 'p' and token ~= ARGV[1] then return { 2, redis.call('PTTL', KEYS[1]) } end
end
redis.call('SET', KEYS[1], 'p' .. ARGV[1], 'PX', ARGV[2])
return { 1 }
