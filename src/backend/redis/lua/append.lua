-- Appends a batch: all of it or nothing.
-- KEYS  meta, then for each section (one partition of the batch): seq, z, s
-- ARGV  number of partitions, then for each section: partition, number of events; then all events in
--       the order of the sections, as `add` takes them
-- Reply {OK, sequence before the first event of each section...} | {STREAM_NOT_FOUND} | {CHANGED}
--       | {NOT_A_NUMBER, section}
local partitions = tonumber(ARGV[1])
local count = redis.call('HGET', KEYS[1], 'partition_count')
if not count then return { STREAM_NOT_FOUND } end
if tonumber(count) ~= partitions then return { CHANGED } end

-- First everything that can fail: a script is not rolled back. ZCARD and XLEN refuse another type.
local sections = {}
for i = 1, (#KEYS - 1) / 3 do
  local base = count_of(redis.call('GET', KEYS[3 * i - 1]), partitions)
  if not base then return { NOT_A_NUMBER, i } end
  redis.call('ZCARD', KEYS[3 * i])
  redis.call('XLEN', KEYS[3 * i + 1])
  sections[i] = { partition = ARGV[2 * i], events = tonumber(ARGV[2 * i + 1]), base = base }
end

local now = now_ms()
local call, format, _ = redis.call, string.format, nil
local reply = { OK }
local i = 2 * #sections + 2
for s, section in ipairs(sections) do
  local seq_key, index, stream = KEYS[3 * s - 1], KEYS[3 * s], KEYS[3 * s + 1]
  local partition, base, events = section.partition, section.base, section.events
  local low = base * partitions + tonumber(partition)
  local rows, n, ms = {}, 0, now
  for k = 1, events do
    low = low + partitions
    local sequence = format('%d', base + k)
    local entry = format('%d-%d', ms, low)
    if k == 1 then
      local added, next = add(redis.pcall, stream, entry, sequence, partition, i, now)
      local above = added.err and string.find(added.err, 'equal or smaller', 1, true) and ms_above(stream, low)
      if above then
        ms = above
        entry = format('%d-%d', ms, low)
        added = add(redis.pcall, stream, entry, sequence, partition, i, now)
      end
      if added.err then return added end
      i = next
    else
      _, i = add(call, stream, entry, sequence, partition, i, now)
    end
    rows[n + 1] = sequence
    rows[n + 2] = entry
    n = n + 2
    if n >= 4000 or k == events then
      call('ZADD', index, unpack(rows))
      rows, n = {}, 0
    end
  end
  call('INCRBY', seq_key, events)
  reply[s + 1] = base
end
return reply
