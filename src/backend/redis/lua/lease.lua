-- The last step of a claim: leases what XREADGROUP handed to this consumer.
-- Inside the claim's transaction it finds the entries itself: they are what stands in the consumer's
-- pending list behind the id that `begin.lua` noted (and only then: a note of another claim does not
-- count). Outside of it, after a failure, it is told the ids, and checks that they are still ours.
-- KEYS  gmeta, note, then for each partition: s, z, done, due, suspect, redriven
-- ARGV  group, consumer, lease in ms, prefix of fences, then for each partition: partition, lease id,
--       how many to find, how many ids follow, ids
-- Reply for each partition {first id, last id, a letter for each entry, then attempt, former holder
--       and former failure for each L and E}; letters: 1 leased, first attempt · L, E, S, B: see
--       retake · A settled before, acked now
local call = redis.call
local group, consumer, fences = ARGV[1], ARGV[2], ARGV[4]
local now = now_ms()
local expires = int(now + tonumber(ARGV[3]))
local max = tonumber(call('HGET', KEYS[1], 'max_attempts') or '5') or 5

-- The entries to lease of one partition, in order.
local function find(stream, note, lease, limit)
  if not note or string.sub(note, 1, #lease + 1) ~= lease .. ' ' then return {} end
  local rows = call('XPENDING', stream, group, '(' .. string.sub(note, #lease + 2), '+', limit, consumer)
  for i = 1, #rows do rows[i] = rows[i][1] end
  return rows
end

-- Whether the entry is settled; only asked while a group comes by old entries.
local function settled(stream, index, done, redriven, frontier, id)
  local sequence = sequence_of(stream, index, id)
  if not sequence then return false, 0 end
  if call('ZSCORE', redriven, id) then return false, sequence end
  if sequence <= frontier then return true, sequence end
  return call('ZSCORE', done, int(sequence)) and true or false, sequence
end

local reply, at = {}, 5
for k = 3, #KEYS, 6 do
  local stream, index, done = KEYS[k], KEYS[k + 1], KEYS[k + 2]
  local p, lease, limit, given = ARGV[at], ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3])
  local note = call('HMGET', KEYS[2], p, 'recheck:' .. p, 'rewind:' .. p)
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
  local frontier = recheck and (tonumber(call('HGET', KEYS[1], 'frontier_p' .. p) or '0') or 0)
  local plain = given == 0 and not recheck
  local letters, extra, template, lowest = {}, {}, nil, nil

  local function lease_one(id)
    local key = fences .. id
    if note[3] then return 'B' end -- a rewind is under way, and decides what becomes of it
    if given > 0 then
      if not call('XPENDING', stream, group, id, id, 1, consumer)[1] then
        return 'B' -- taken by a sweep in the meantime
      end
      -- Leased in the transaction, where more stood behind the note than was read: what this consumer
      -- holds of a group that was moved back, and that has no body.
      local own = call('HMGET', key, 'lease_id', 'attempt')
      if own[1] == lease then
        for _, part in ipairs({ own[2], '', '' }) do extra[#extra + 1] = part end
        return 'L'
      end
    end
    if recheck then
      local old, sequence = settled(stream, index, done, KEYS[k + 5], frontier, id)
      if sequence > 0 then lowest = math.min(lowest or sequence, sequence) end
      if old then
        call('XACK', stream, group, id)
        return 'A'
      end
    end
    if template then
      if call('COPY', template, key) == 1 then return '1' end
    elseif call('EXISTS', key) == 0 then
      call('HSET', key, 'lease_id', lease, 'attempt', '1', 'expires_at_ms', expires, 'partition', p,
        'consumer_id', consumer)
      template = key
      return '1'
    end
    local letter, attempt, holder, failure = retake(take, id, 1, '')
    if letter == 'L' or letter == 'E' then
      for _, part in ipairs({ int(attempt), holder, failure }) do extra[#extra + 1] = part end
    end
    return letter
  end

  for i = 1, #ids do
    -- What comes nearly always is written out.
    if template and plain and call('COPY', template, fences .. ids[i]) == 1 then
      letters[i] = '1'
    else
      letters[i] = lease_one(ids[i])
    end
  end
  -- Past the old ones, with room for another writer's entries out of order.
  if recheck and lowest and lowest > recheck + 1000 then call('HDEL', KEYS[2], 'recheck:' .. p) end
  local row = { ids[1] or '', ids[#ids] or '', table.concat(letters) }
  for i, text in ipairs(extra) do row[3 + i] = text end
  reply[#reply + 1] = row
end
return reply
