-- The last step of a claim: leases what XREADGROUP handed to this consumer.
-- Inside the claim's transaction it finds the entries itself, behind the id that `begin.lua` noted (and
-- only then: a note of another claim does not count). Where that id is one that we chose, the index says
-- what follows it, which is far cheaper than the pending list. It is believed only up to an entry that
-- this consumer was handed, so that nothing is leased that was not; but other writers' rows can name
-- entries that are gone, or leave some out. So the client compares the answer with what it read, and where
-- they differ it calls this outside of the transaction with the ids that it read, and with those that were
-- leased and are not among them.
-- KEYS  gmeta, note, then for each partition: s, z, done, due, suspect, redriven
-- ARGV  group, consumer, lease in ms, prefix of fences, number of partitions, then for each partition:
--       partition, lease id, how many to find, how many ids to lease follow, how many to let go of, ids
-- Reply for each partition {ids with spaces between them, a letter for each, then attempt, former holder
--       and former failure for each L and E}; letters: 1 leased, first attempt · L, E, S, B: see
--       retake · A settled before, acked now · X not looked at: to be asked for by name
local call = redis.call
local group, consumer, fences, partitions = ARGV[1], ARGV[2], ARGV[4], tonumber(ARGV[5])
local now = now_ms()
local expires = int(now + tonumber(ARGV[3]))
local max

-- What the pending list has behind an id, in order.
local function pending(stream, at, limit)
  local rows = call('XPENDING', stream, group, '(' .. at, '+', limit, consumer)
  for i = 1, #rows do rows[i] = rows[i][1] end
  return rows
end

-- The sequence of an entry id that we chose, see append.lua; nil for any other.
local function chosen(at, p)
  if at == '0-0' then return 0 end
  local low = tonumber(string.match(at, '-(%d+)$')) - p
  return low > 0 and low < 9007199254740992 and low % partitions == 0 and low / partitions or nil
end

-- The same by the index: what it has behind the sequence of `at`. nil where it cannot be certain that the
-- ids are in the log's order and the last of them was handed to this consumer, and so each that is in the
-- log. Ids of one form are compared as text; another form is left to the pending list.
local function indexed(stream, index, at, p, limit)
  local sequence = chosen(at, p)
  if not sequence then return nil end
  local ids = call('ZRANGEBYSCORE', index, '(' .. int(sequence), '+inf', 'LIMIT', 0, limit)
  local last = ids[#ids]
  if not last then return ids end
  local length, dash, before = #last, string.find(last, '-', 1, true), at ~= '0-0' and at or nil
  for i = before and 0 or 1, #ids do
    local id = ids[i] or at
    if #id ~= length or string.byte(id, dash) ~= 45 or (i > 0 and before and id <= before) then return nil end
    before = id
  end
  if not is_id(last) or not call('XPENDING', stream, group, last, last, 1, consumer)[1] then return nil end
  return ids
end

-- Whether the entry is settled; only asked while a group comes by old entries.
local function settled(stream, index, done, redriven, frontier, id)
  local sequence = sequence_of(stream, index, id)
  if not sequence then return false, 0 end
  if call('ZSCORE', redriven, id) then return false, sequence end
  if sequence <= frontier then return true, sequence end
  return call('ZSCORE', done, int(sequence)) and true or false, sequence
end

local reply, at = {}, 6
for k = 3, #KEYS, 6 do
  local stream, index, done = KEYS[k], KEYS[k + 1], KEYS[k + 2]
  local p, lease, limit, given, strays = ARGV[at], ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
  local note = call('HMGET', KEYS[2], p, 'recheck:' .. p, 'rewind:' .. p)
  local recheck, rewound = tonumber(note[2] or ''), note[3]
  local ids, found = {}, nil
  at = at + 5
  if given > 0 then
    for i = 1, given do ids[i] = ARGV[at + i - 1] end
  elseif strays == 0 and note[1] and string.sub(note[1], 1, #lease + 1) == lease .. ' ' then
    local stands = string.sub(note[1], #lease + 2)
    found = not recheck and not rewound and indexed(stream, index, stands, p, limit)
    ids = found or pending(stream, stands, limit)
  end
  for i = at + given, at + given + strays - 1 do
    local key = fences .. ARGV[i]
    if call('HGET', key, 'lease_id') == lease then call('DEL', key) end
  end
  at = at + given + strays

  local frontier = recheck and (tonumber(call('HGET', KEYS[1], 'frontier_p' .. p) or '0') or 0)
  local letters, extra, template, lowest, take = {}, {}, nil, nil, nil

  local function lease_first(key)
    call('HSET', key, 'lease_id', lease, 'attempt', '1', 'expires_at_ms', expires, 'partition', p,
      'consumer_id', consumer)
    template = key
    return '1'
  end

  local function lease_one(id)
    local key = fences .. id
    if rewound then return 'B' end -- a rewind is under way, and decides what becomes of it
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
      return lease_first(key)
    end
    max = max or tonumber(call('HGET', KEYS[1], 'max_attempts') or '5') or 5
    take = take or { stream = stream, group = group, consumer = consumer, fences = fences, partition = p,
      lease = lease, expires = expires, now = now, max = max, due = KEYS[k + 3], suspects = KEYS[k + 4] }
    local letter, attempt, holder, failure = retake(take, id, 1, '')
    if letter == 'L' or letter == 'E' then
      for _, part in ipairs({ int(attempt), holder, failure }) do extra[#extra + 1] = part end
    end
    return letter
  end

  for i = 1, #ids do
    local id = ids[i]
    if found then
      -- What comes nearly always. Where there is a fence already, it is not ours to judge before the
      -- client has seen that the entry was read.
      local key = fences .. id
      if template then
        letters[i] = call('COPY', template, key) == 1 and '1' or 'X'
      else
        letters[i] = call('EXISTS', key) == 0 and lease_first(key) or 'X'
      end
    else
      letters[i] = lease_one(id)
    end
  end
  -- Past the old ones, with room for another writer's entries out of order.
  if recheck and lowest and lowest > recheck + 1000 then call('HDEL', KEYS[2], 'recheck:' .. p) end
  local row = { table.concat(ids, ' '), table.concat(letters) }
  for i, text in ipairs(extra) do row[2 + i] = text end
  reply[#reply + 1] = row
end
return reply
