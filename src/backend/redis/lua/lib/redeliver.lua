-- Shared: delivers settled events again.

-- The state of a partition: the keys from KEYS[k] on are s, z, done, due, suspect, redriven, copy.
local function place_of(k, p, group, consumer, fences, frontier)
  return { partition = p, group = group, consumer = consumer, fences = fences, now = now_ms(),
    frontier = tonumber(frontier or '0') or 0, stream = KEYS[k], index = KEYS[k + 1], done = KEYS[k + 2],
    due = KEYS[k + 3], suspects = KEYS[k + 4], redriven = KEYS[k + 5], copies = KEYS[k + 6] }
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
