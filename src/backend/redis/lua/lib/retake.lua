-- Shared: takes one entry that is pending, or was read a moment ago, and is under no live lease.
-- One decision for every way to come by such an entry.
--
-- take   what is the same for all entries of the call:
--        stream, group, consumer, fences (prefix of their keys), partition, lease, expires (text),
--        now, max (the group's attempt cap), due, suspects (keys)
-- id     the entry
-- deliveries  how often the pending list says it was delivered
-- way    'due': its time has come · 'alone': a suspect's turn · '' otherwise
--
-- Returns a letter, the attempt, the former holder, the former failure:
--   L leased, attempt counted · E leased, but its attempts are used up: make it a dead letter
--   S passed over, as a suspect · B not claimable: under a live lease, parked, or its fence belongs
--   to an entry of the same id in another partition
local function retake(take, id, deliveries, way)
  local key = take.fences .. id
  local fence = redis.call('HMGET', key, 'lease_id', 'attempt', 'expires_at_ms', 'partition', 'consumer_id', 'failure')
  local lease, expires = fence[1] or '', tonumber(fence[3] or '') or 0
  local expired = false
  if lease == 'parked' then
    if way ~= 'due' or fence[4] ~= take.partition then return 'B', 0, '', '' end
  elseif lease ~= '' then
    if expires > take.now then return 'B', 0, '', '' end
    expired = true
  end
  -- The key has no partition: of a fence that names another one, nothing is believed. Without a
  -- fence the entry never came to a handler, so its own last delivery does not count.
  local prior, failure, holder
  if fence[4] == take.partition then
    prior, failure, holder = tonumber(fence[2] or ''), fence[6] or '', fence[5] or ''
    if expired then failure = 'expired' end
  else
    failure, holder = '', ''
    redis.call('DEL', key)
  end
  prior = prior or math.max(deliveries - 1, 0)
  if failure == 'expired' and prior + 1 == take.max and take.max > 1 and way ~= 'alone' then
    -- The score tells the two apart: 0 was handed back and counts as parked, others hold a lease
    -- that ran out.
    redis.call('ZADD', take.suspects, expired and take.now or 0, id)
    redis.call('ZREM', take.due, id)
    return 'S', 0, '', ''
  end
  -- JUSTID: a new holder is not another delivery. It also sets the idle time back. Without the group (it
  -- was lost a moment ago) the fence alone is the lease.
  local claimed = redis.pcall('XCLAIM', take.stream, take.group, take.consumer, 0, id, 'JUSTID')
  if claimed.err and not string.find(claimed.err, 'NOGROUP', 1, true) then error(claimed.err) end
  redis.call('ZREM', take.due, id)
  redis.call('ZREM', take.suspects, id)
  if prior >= take.max then
    redis.call('HSET', key, 'lease_id', take.lease, 'attempt', int(prior), 'expires_at_ms', take.expires,
      'partition', take.partition, 'consumer_id', take.consumer)
    return 'E', prior, holder, failure
  end
  redis.call('HSET', key, 'lease_id', take.lease, 'attempt', int(prior + 1), 'expires_at_ms', take.expires,
    'partition', take.partition, 'consumer_id', take.consumer)
  if expired and failure == 'expired' then
    redis.call('HSET', key, 'failure', 'expired', 'reason', 'the lease of ' .. holder .. ' ran out')
  end
  return 'L', prior + 1, holder, failure
end
