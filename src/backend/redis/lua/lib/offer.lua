-- Shared: puts a redriven event before the group, as one that was let go before its first attempt.
-- at  fences (prefix of their keys), partition, now, due, suspects (keys)
local function offer(at, id, sequence)
  local key = at.fences .. id
  local fence = redis.call('HMGET', key, 'lease_id', 'expires_at_ms', 'partition')
  local lease = fence[1] or ''
  local live = lease == 'parked' or (lease ~= '' and (tonumber(fence[2] or '') or 0) > at.now)
  -- The key has no partition. While another one's entry is held under it, there is no fence of ours:
  -- the sweep finds the event by its record later.
  if not live or not fence[3] or fence[3] == at.partition then
    redis.call('DEL', key)
    redis.call('HSET', key, 'lease_id', '', 'attempt', '0', 'expires_at_ms', '0', 'partition', at.partition,
      'sequence', int(sequence))
  end
  redis.call('ZADD', at.due, int(at.now), id)
  redis.call('ZREM', at.suspects, id)
end
