-- Appends a batch: all of it or nothing.
-- KEYS  meta, then for each section (one partition of the batch): seq, z, s
-- ARGV  number of partitions, then for each section: partition, number of events, and for each
--       event: id, timestamp ('' = now), shape ('' | k | t | kt), key, type, metadata, payload
-- Reply {OK, sequence before the first event of each section...} | {STREAM_NOT_FOUND} | {CHANGED}
--       | {NOT_A_NUMBER, section}
local WIDTH = 7
local partitions = tonumber(ARGV[1])
local count = redis.call('HGET', KEYS[1], 'partition_count')
if not count then return { STREAM_NOT_FOUND } end
if tonumber(count) ~= partitions then return { CHANGED } end

-- First everything that can fail: a script is not rolled back. ZCARD and XLEN refuse another type.
local sections, at = {}, 2
for i = 1, (#KEYS - 1) / 3 do
  local seq = redis.call('GET', KEYS[3 * i - 1]) or '0'
  if not string.match(seq, '^%d+$') or tonumber(seq) > 9007199254740991 - 10000 then return { NOT_A_NUMBER, i } end
  redis.call('ZCARD', KEYS[3 * i])
  redis.call('XLEN', KEYS[3 * i + 1])
  local events = tonumber(ARGV[at + 1])
  sections[i] = { partition = ARGV[at], events = events, first = at + 2, base = tonumber(seq) }
  at = at + 2 + WIDTH * events
end

local now = now_ms()
local today

local function add(stream, entry, sequence, partition, i)
  local timestamp = ARGV[i + 1]
  if timestamp == '' then
    today = today or iso(now)
    timestamp = today
  end
  local shape = ARGV[i + 2]
  if shape == '' then
    return redis.pcall('XADD', stream, entry, 'id', ARGV[i], 'sequence', sequence, 'partition', partition,
      'timestamp', timestamp, 'metadata', ARGV[i + 5], 'payload', ARGV[i + 6])
  elseif shape == 'k' then
    return redis.pcall('XADD', stream, entry, 'id', ARGV[i], 'sequence', sequence, 'partition', partition,
      'timestamp', timestamp, 'key', ARGV[i + 3], 'metadata', ARGV[i + 5], 'payload', ARGV[i + 6])
  elseif shape == 't' then
    return redis.pcall('XADD', stream, entry, 'id', ARGV[i], 'sequence', sequence, 'partition', partition,
      'timestamp', timestamp, 'type', ARGV[i + 4], 'metadata', ARGV[i + 5], 'payload', ARGV[i + 6])
  end
  return redis.pcall('XADD', stream, entry, 'id', ARGV[i], 'sequence', sequence, 'partition', partition,
    'timestamp', timestamp, 'key', ARGV[i + 3], 'type', ARGV[i + 4], 'metadata', ARGV[i + 5], 'payload', ARGV[i + 6])
end

-- The last id's milliseconds. Asked for only when needed: the reply holds two whole entries.
local function last_ms(stream)
  local info = redis.call('XINFO', 'STREAM', stream)
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then return tonumber(string.match(info[i + 1], '^(%d+)')) end
  end
end

local reply = { OK }
for s, section in ipairs(sections) do
  local seq_key, index, stream = KEYS[3 * s - 1], KEYS[3 * s], KEYS[3 * s + 1]
  local ms, rows = now, {}
  for n = 1, section.events do
    local sequence = section.base + n
    local text = int(sequence)
    -- The low part is no two partitions' own, since fences are told apart by entry id alone.
    local low = int(sequence * partitions + tonumber(section.partition))
    local entry = int(ms) .. '-' .. low
    local i = section.first + WIDTH * (n - 1)
    local added = add(stream, entry, text, section.partition, i)
    if added.err and string.find(added.err, 'equal or smaller', 1, true) then
      -- The clock went back, or another writer's id of this millisecond is higher.
      ms = last_ms(stream) + 1
      entry = int(ms) .. '-' .. low
      added = add(stream, entry, text, section.partition, i)
    end
    -- The first write of all is an XADD, so that a full store refuses before the counter moves.
    if added.err then return added end
    rows[#rows + 1] = text
    rows[#rows + 1] = entry
    if #rows >= 4000 or n == section.events then
      redis.call('ZADD', index, unpack(rows))
      rows = {}
    end
  end
  redis.call('INCRBY', seq_key, section.events)
  reply[s + 1] = section.base
end
return reply
