-- Makes a lost group again where the store has its metadata but not the group itself: after a
-- failover, an XGROUP DESTROY, a deleted stream, or a creation by another writer that died half-way.
-- It starts just before the lowest entry whose event is unsettled, all read here and now.
-- KEYS  gmeta, note, then for each partition: s, z, done, seq, redriven
-- ARGV  group, consumer that redriven events are put under, then the partitions
-- Reply number of partitions restored, or -1 where there is no metadata
local room = 200 -- redriven events that are put back: the rest is found by its record alone
local group = ARGV[1]
if redis.call('HLEN', KEYS[1]) == 0 then return -1 end

local restored = 0
for i = 3, #ARGV do
  local p, k = ARGV[i], 3 + 5 * (i - 3)
  local stream, index, done, seq = KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3]
  local at, wrong = last_delivered(stream, group)
  if wrong then return wrong end
  if not at then
    local frontier = tonumber(redis.call('HGET', KEYS[1], 'frontier_p' .. p) or '0') or 0
    local start = start_of(stream, index, frontier, done)
    redis.call('XGROUP', 'CREATE', stream, group, start, 'MKSTREAM')
    -- Up to here a claim checks each entry against frontier and done: the group comes by settled
    -- entries again.
    local until_sequence = tonumber(redis.call('GET', seq) or '0') or 0
    redis.call('HSET', KEYS[2], 'recheck:' .. p, int(math.max(until_sequence, frontier)),
      vouch(stream, group, p, start, false))
    -- A redriven event keeps its record, its fence and its place in `due`; another writer finds it
    -- only in the pending list.
    local redriven = room > 0 and redis.call('ZRANGE', KEYS[k + 4], 0, room - 1) or {}
    for _, id in ipairs(redriven) do
      if redis.call('XRANGE', stream, id, id)[1] then
        redis.call('XCLAIM', stream, group, ARGV[2], 0, id, 'RETRYCOUNT', '0', 'FORCE', 'JUSTID')
      end
    end
    room = room - #redriven
    restored = restored + 1
  end
end
return restored
