-- Creates a group on all partitions of its stream.
-- KEYS  meta, gmeta, note, then for each partition: s, seq, done, due, suspect, redriven, copy
-- ARGV  group, number of partitions, max_attempts, then for each partition as in the reply of
--       start.lua: frontier, start id, recheck; or '', '$', '0' for the end
-- Reply OK | EXISTS | STREAM_NOT_FOUND | CHANGED (the stream has another number of partitions)
local WIDTH = 7
local group, partitions, max_attempts = ARGV[1], ARGV[2], ARGV[3]
local count = redis.call('HGET', KEYS[1], 'partition_count')
if not count then return STREAM_NOT_FOUND end
if count ~= partitions then return CHANGED end
if redis.call('HLEN', KEYS[2]) > 0 then return EXISTS end

-- Everything that can fail comes before the first write: XLEN refuses another type.
local fields = { 'max_attempts', max_attempts }
for p = 0, tonumber(partitions) - 1 do
  redis.call('XLEN', KEYS[4 + WIDTH * p])
  local last = tonumber(redis.call('GET', KEYS[5 + WIDTH * p]) or '0')
  local frontier = ARGV[4 + 3 * p]
  if frontier == '' then frontier = int(last or 0) end
  for _, field in ipairs({ 'frontier_p' .. p, frontier, 'cursor_p' .. p, frontier }) do
    fields[#fields + 1] = field
  end
end

-- What a group of that name left that no metadata knows is not this one's.
redis.call('UNLINK', KEYS[3])
local notes = {}
for p = 0, tonumber(partitions) - 1 do
  local k = 4 + WIDTH * p
  local start, recheck = ARGV[5 + 3 * p], ARGV[6 + 3 * p]
  local made = redis.pcall('XGROUP', 'CREATE', KEYS[k], group, start, 'MKSTREAM')
  if made.err then
    if not string.find(made.err, 'BUSYGROUP', 1, true) then return made end
    redis.call('XGROUP', 'SETID', KEYS[k], group, start)
  end
  redis.call('UNLINK', KEYS[k + 2], KEYS[k + 3], KEYS[k + 4], KEYS[k + 5], KEYS[k + 6])
  if start == '$' then start = last_delivered(KEYS[k], group) or '0' end
  for _, part in ipairs({ vouch(KEYS[k], group, p, start, false) }) do notes[#notes + 1] = part end
  if recheck ~= '0' then
    notes[#notes + 1] = 'recheck:' .. p
    notes[#notes + 1] = recheck
  end
end
redis.call('HSET', KEYS[3], unpack(notes))
redis.call('HSET', KEYS[2], unpack(fields))
return OK
