-- Shared: delivers settled events again.

-- The state of a partition: the keys from KEYS[k] on are s, z, done, due, suspect, redriven, copy.
local function place_of(k, p, group, consumer, fences, frontier)
  return { partition = p, group = group, consumer = consumer, fences = fences, now = now_ms(),
    frontier = tonumber(frontier or '0') or 0, stream = KEYS[k], index = KEYS[k + 1], done = KEYS[k + 2],
    due = KEYS[k + 3], suspects = KEYS[k + 4], redriven = KEYS[k + 5], copies = KEYS[k + 6] }
end

-- The states of the partitions that a call is about, or nil and what it is to reply instead.
-- KEYS[1] gmeta, KEYS[2] note, from KEYS[k] on seven keys for each partition; ARGV[1] group, ARGV[2]
-- consumer, ARGV[3] fences, from ARGV[a] on the n partitions
local function places_of(k, a, n)
  if redis.call('HLEN', KEYS[1]) == 0 then return nil, { GROUP_NOT_FOUND } end
  local places = {}
  for i = 1, n do
    local p, at = ARGV[a + i - 1], k + 7 * (i - 1)
    if redis.call('HEXISTS', KEYS[2], 'rewind:' .. p) == 1 then return nil, { REWINDING } end
    places[i] = place_of(at, p, ARGV[1], ARGV[2], ARGV[3], redis.call('HGET', KEYS[1], 'frontier_p' .. p))
    -- Another type under our keys is refused here, before the first write.
    for _, key in ipairs({ KEYS[at + 3], KEYS[at + 4], KEYS[at + 5] }) do redis.call('ZCARD', key) end
    redis.call('HLEN', KEYS[at + 6])
  end
  return places
end

-- Whether the group has the event before it anyway: it is not settled, or is delivered again.
local function underway(at, id, sequence)
  local text = int(sequence)
  if sequence > at.frontier and not redis.call('ZSCORE', at.done, text) then return true end
  if redis.call('ZRANGEBYSCORE', at.redriven, text, text, 'LIMIT', 0, 1)[1] then return true end
  return redis.call('HGET', at.fences .. id, 'partition') == at.partition
end

-- The record and the copy first: a full store refuses these, and then nothing has happened.
local function redeliver(at, id, sequence, fields, in_log)
  redis.call('HSET', at.copies, id, copy_of(fields))
  redis.call('ZADD', at.redriven, int(sequence), id)
  offer(at, id, sequence)
  if in_log then
    -- For other writers, which find only what is pending. Without the group (it was lost a moment ago)
    -- the record is enough.
    local claimed = redis.pcall('XCLAIM', at.stream, at.group, at.consumer, 0, id, 'RETRYCOUNT', 0, 'FORCE', 'JUSTID')
    if claimed.err and not string.find(claimed.err, 'NOGROUP', 1, true) then return claimed end
  end
end
