-- Makes a lost group again where the store has its metadata but not the group itself: after a
-- failover, an XGROUP DESTROY, a deleted stream, or a creation by another writer that died half-way.
-- It starts just before the lowest entry whose event is unsettled, all read here and now.
-- KEYS  gmeta, note, then for each partition: s, z, done, seq
-- ARGV  group, then the partitions
-- Reply number of partitions restored, or -1 where there is no metadata
local group = ARGV[1]
if redis.call('HLEN', KEYS[1]) == 0 then return -1 end

-- Another writer's entries can stand in another order than their sequences, but only within as many
-- as its concurrent appends: so far behind the frontier the lowest entry is looked for.
local WINDOW = 1000

local function start_of(stream, index, done, frontier)
  local rows = redis.call('ZRANGEBYSCORE', index, '(' .. int(frontier), '+inf', 'WITHSCORES', 'LIMIT', 0, WINDOW)
  local first
  local first_ms, first_low
  for i = 1, #rows, 2 do
    if not redis.call('ZSCORE', done, int(tonumber(rows[i + 1]))) then
      local ms, low = string.match(rows[i], '^(%d+)-(%d+)$')
      ms, low = tonumber(ms), tonumber(low)
      if ms and (not first or ms < first_ms or (ms == first_ms and low < first_low)) then
        first, first_ms, first_low = rows[i], ms, low
      end
    end
  end
  if not first then
    -- Nothing unsettled here, or all of the window is settled: go on behind the last row known to
    -- be settled. What stands there without an index row is delivered.
    local last = rows[#rows - 1]
    if not last then
      last = redis.call('ZREVRANGEBYSCORE', index, int(frontier), '-inf', 'LIMIT', 0, 1)[1]
    end
    return last or '0'
  end
  local before = redis.call('XREVRANGE', stream, '(' .. first, '-', 'COUNT', 1)
  return before[1] and before[1][1] or '0'
end

local restored = 0
for i = 2, #ARGV do
  local p, k = ARGV[i], 3 + 4 * (i - 2)
  local stream, index, done, seq = KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3]
  local at, wrong = last_delivered(stream, group)
  if wrong then return wrong end
  if not at then
    local frontier = tonumber(redis.call('HGET', KEYS[1], 'frontier_p' .. p) or '0') or 0
    local start = start_of(stream, index, done, frontier)
    redis.call('XGROUP', 'CREATE', stream, group, start, 'MKSTREAM')
    -- Up to here a claim checks each entry against frontier and done: the group comes by settled
    -- entries again.
    local until_sequence = tonumber(redis.call('GET', seq) or '0') or 0
    redis.call('HSET', KEYS[2], 'recheck:' .. p, int(math.max(until_sequence, frontier)))
    restored = restored + 1
  end
end
return restored
