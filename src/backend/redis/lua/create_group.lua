-- Creates a group on all partitions of its stream.
-- KEYS  meta, gmeta, then for each partition: s, seq
-- ARGV  group, number of partitions, max_attempts, start ('0' or '$')
-- Reply OK | EXISTS | STREAM_NOT_FOUND | CHANGED (the stream has another number of partitions)
local group, partitions, max_attempts, start = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local count = redis.call('HGET', KEYS[1], 'partition_count')
if not count then return STREAM_NOT_FOUND end
if count ~= partitions then return CHANGED end
if redis.call('HLEN', KEYS[2]) > 0 then return EXISTS end

-- Everything that can fail comes before the first write: XLEN refuses another type.
local fields = { 'max_attempts', max_attempts }
for p = 0, tonumber(partitions) - 1 do
  redis.call('XLEN', KEYS[3 + 2 * p])
  local last = tonumber(redis.call('GET', KEYS[4 + 2 * p]) or '0')
  local frontier = start == '0' and '0' or int(last or 0)
  for _, field in ipairs({ 'frontier_p' .. p, frontier, 'cursor_p' .. p, frontier }) do
    fields[#fields + 1] = field
  end
end

for p = 0, tonumber(partitions) - 1 do
  -- A group of that name that no metadata knows is a leftover: it starts anew.
  local made = redis.pcall('XGROUP', 'CREATE', KEYS[3 + 2 * p], group, start, 'MKSTREAM')
  if made.err then
    if not string.find(made.err, 'BUSYGROUP', 1, true) then return made end
    redis.call('XGROUP', 'SETID', KEYS[3 + 2 * p], group, start)
  end
end
redis.call('HSET', KEYS[2], unpack(fields))
return OK
