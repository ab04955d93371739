-- Mends a gap behind the frontier: gives an entry its index row, or passes sequences that no entry
-- has. Everything is looked at again: it may have changed since the gap was found.
-- KEYS  gmeta, note, s, z, done
-- ARGV  partition, then: 'row', entry id, sequence | 'pass', first and last sequence, how old the gap
--       must be in ms, 1 where it is known to be old
-- Reply the last sequence that has its row now, or that was passed; 0 where nothing was mended
local p, what = ARGV[1], ARGV[2]
if redis.call('HLEN', KEYS[1]) == 0 or redis.call('HEXISTS', KEYS[2], 'rewind:' .. p) == 1 then return 0 end
if what == 'row' then
  local id, sequence = ARGV[3], ARGV[4]
  if redis.call('ZSCORE', KEYS[4], id) or redis.call('ZCOUNT', KEYS[4], sequence, sequence) > 0 then return 0 end
  if not redis.call('XRANGE', KEYS[3], id, id, 'COUNT', 1)[1] then return 0 end
  redis.call('ZADD', KEYS[4], sequence, id)
  return tonumber(sequence)
end
local first, last = tonumber(ARGV[3]), tonumber(ARGV[4])
local frontier = tonumber(redis.call('HGET', KEYS[1], 'frontier_p' .. p) or '0') or 0
if first ~= frontier + 1 then return 0 end
if ARGV[6] ~= '1' then
  -- Nothing in the log tells its age: it counts from when it was first seen.
  local now = now_ms()
  local hole = redis.call('HGET', KEYS[2], 'hole:' .. p) or ''
  local seen, to, since = string.match(hole, '^(%d+) (%d+) (%d+)$')
  if seen ~= ARGV[3] then
    to, since = last, now
    redis.call('HSET', KEYS[2], 'hole:' .. p, ARGV[3] .. ' ' .. ARGV[4] .. ' ' .. int(now))
  end
  if now - tonumber(since) < tonumber(ARGV[5]) then return 0 end
  -- What was given out later may still be under way.
  last = math.min(last, tonumber(to))
end
if redis.call('ZCOUNT', KEYS[4], int(first), int(last)) > 0 then return 0 end
redis.call('HDEL', KEYS[2], 'hole:' .. p)
redis.call('HSET', KEYS[1], 'frontier_p' .. p, int(advance(KEYS[5], last)))
return last
