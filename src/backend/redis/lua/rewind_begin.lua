-- Begins to move a group: writes the marker of each partition touched, and its frontier.
-- KEYS  meta, gmeta, note, then for each partition touched: seq
-- ARGV  number of the stream's partitions, kind (replay, reset, delete), then for each partition
--       touched: partition, target sequence
-- Reply OK | STREAM_NOT_FOUND | GROUP_NOT_FOUND | CHANGED (the stream has another number of partitions)
--       | REWINDING (another one is under way)
local kind = ARGV[2]
local count = redis.call('HGET', KEYS[1], 'partition_count')
if not count then return STREAM_NOT_FOUND end
if count ~= ARGV[1] then return CHANGED end
if redis.call('HLEN', KEYS[2]) == 0 then return GROUP_NOT_FOUND end
local markers = {}
for p = 0, tonumber(count) - 1 do markers[p + 1] = 'rewind:' .. p end
for _, marker in ipairs(redis.call('HMGET', KEYS[3], unpack(markers))) do
  if marker then return REWINDING end
end

local notes, fields = {}, {}
for i = 1, (#ARGV - 2) / 2 do
  local p = ARGV[1 + 2 * i]
  local target = 0
  if kind ~= 'delete' then
    local high = tonumber(redis.call('GET', KEYS[3 + i]) or '0') or 0
    target = math.min(tonumber(ARGV[2 + 2 * i]), high)
    local frontier = tonumber(redis.call('HGET', KEYS[2], 'frontier_p' .. p) or '0') or 0
    fields[#fields + 1] = 'frontier_p' .. p
    fields[#fields + 1] = int(kind == 'replay' and math.min(frontier, target) or target)
  end
  notes[#notes + 1] = 'rewind:' .. p
  notes[#notes + 1] = kind .. ' ' .. int(target)
end
if #notes > 0 then redis.call('HSET', KEYS[3], unpack(notes)) end
if #fields > 0 then redis.call('HSET', KEYS[2], unpack(fields)) end
return OK
