-- The last step of a claim: leases what XREADGROUP handed to this consumer.
-- Inside the claim's transaction it finds the entries itself: they are what stands in the consumer's
-- pending list behind the id that `begin.lua` noted (and only then: a note of another claim does not
-- count). Outside of it, after a failure, it is told the ids, and checks that they are still ours.
-- KEYS  gmeta, note, then for each partition: s, z, done, due, suspect
-- ARGV  group, consumer, lease in ms, prefix of fences, then for each partition: partition, lease id,
--       how many to find, how many ids follow, ids
-- Reply for each partition {first id, last id, a letter for each entry, then attempt, former holder
--       and former failure for each L and E}; letters: 1 leased, first attempt · L, E, S, B: see
--       retake · A settled before, acked now
local group, consumer = ARGV[1], ARGV[2]
local now = now_ms()
local expires = int(now + tonumber(ARGV[3]))
local max = tonumber(redis.call('HGET', KEYS[1], 'max_attempts') or '5') or 5

-- The entries to lease of one partition, in order.
local function find(stream, note, lease, limit)
  local ids = {}
  if note and string.sub(note, 1, #lease + 1) == lease .. ' ' then
    local from = string.sub(note, #lease + 2)
    for i, row in ipairs(redis.call('XPENDING', stream, group, '(' .. from, '+', limit, consumer)) do
      ids[i] = row[1]
    end
  end
  return ids
end

-- Whether the entry is settled; only asked while a restored group comes by old entries.
local function settled(index, done, frontier, id)
  local sequence = tonumber(redis.call('ZSCORE', index, id) or '')
  if not sequence then return false, 0 end
  if sequence <= frontier then return true, sequence end
  return redis.call('ZSCORE', done, int(sequence)) and true or false, sequence
end

local reply, at = {}, 5
for k = 3, #KEYS, 5 do
  local stream, index, done = KEYS[k], KEYS[k + 1], KEYS[k + 2]
  local p, lease, limit, given = ARGV[at], ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3])
  local note = redis.call('HMGET', KEYS[2], p, 'recheck:' .. p)
  local ids
  if given == 0 then
    ids = find(stream, note[1], lease, limit)
  else
    ids = {}
    for i = 1, given do ids[i] = ARGV[at + 3 + i] end
  end
  at = at + 4 + given

  local take = { stream = stream, group = group, consumer = consumer, fences = ARGV[4], partition = p,
    lease = lease, expires = expires, now = now, max = max, due = KEYS[k + 3], suspects = KEYS[k + 4] }
  local recheck = tonumber(note[2] or '')
  local frontier = recheck and (tonumber(redis.call('HGET', KEYS[1], 'frontier_p' .. p) or '0') or 0)
  local letters, extra, template, lowest = {}, {}, nil, nil
  for i, id in ipairs(ids) do
    local key = ARGV[4] .. id
    local old, sequence = false, nil
    if recheck then
      old, sequence = settled(index, done, frontier, id)
      if sequence > 0 then lowest = math.min(lowest or sequence, sequence) end
    end
    if given > 0 and not redis.call('XPENDING', stream, group, id, id, 1, consumer)[1] then
      letters[i] = 'B' -- taken by a sweep in the meantime
    elseif old then
      redis.call('XACK', stream, group, id)
      letters[i] = 'A'
    elseif template and redis.call('COPY', template, key) == 1 then
      letters[i] = '1'
    elseif not template and redis.call('EXISTS', key) == 0 then
      redis.call('HSET', key, 'lease_id', lease, 'attempt', '1', 'expires_at_ms', expires, 'partition', p,
        'consumer_id', consumer)
      template = key
      letters[i] = '1'
    else
      local letter, attempt, holder, failure = retake(take, id, 1, '')
      letters[i] = letter
      if letter == 'L' or letter == 'E' then
        extra[#extra + 1] = int(attempt)
        extra[#extra + 1] = holder
        extra[#extra + 1] = failure
      end
    end
  end
  -- Past the old ones, with room for another writer's entries out of order.
  if recheck and lowest and lowest > recheck + 1000 then redis.call('HDEL', KEYS[2], 'recheck:' .. p) end
  local row = { ids[1] or '', ids[#ids] or '', table.concat(letters) }
  for i, text in ipairs(extra) do row[3 + i] = text end
  reply[#reply + 1] = row
end
return reply
