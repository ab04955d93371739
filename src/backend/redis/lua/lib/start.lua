-- Shared: where a group has to stand in a partition's stream so that it reads everything above a
-- sequence.

-- Another writer's entries can stand in another order than their sequences, but only within as many
-- as its concurrent appends: over so many sequences the lowest entry is looked for, and over so many
-- entries in front of that for those that have no index row.
local WINDOW, UNINDEXED = 1000, 32

-- The sequence that an entry's own fields tell.
local function own_sequence(fields)
  for i = 1, #fields, 2 do
    if fields[i] == 'sequence' then
      return string.match(fields[i + 1], '^%d+$') and tonumber(fields[i + 1])
    end
  end
end

-- The sequence of an entry: by the index, else by its own fields; nil where neither tells.
local function sequence_of(stream, index, id)
  local known = tonumber(redis.call('ZSCORE', index, id) or '')
  if known then return known end
  local entry = redis.call('XRANGE', stream, id, id)[1]
  return entry and own_sequence(entry[2])
end

-- The sequence before the first unsettled one above the position, as far as the window reaches. A
-- window that is settled as a whole is read again: every entry is checked when it comes by.
local function last_settled(index, position, done)
  local rows = redis.call('ZRANGEBYSCORE', index, '(' .. int(position), '+inf', 'WITHSCORES', 'LIMIT', 0, WINDOW)
  for i = 2, #rows, 2 do
    local sequence = tonumber(rows[i])
    if not redis.call('ZSCORE', done, int(sequence)) then return sequence - 1 end
  end
  return position
end

-- The id just before the lowest entry above the position. With `done`: before the lowest unsettled
-- one. What is settled and stands behind it comes by again, see `recheck:` in the note.
local function start_of(stream, index, position, done)
  local from = done and last_settled(index, position, done) or position
  local lowest
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', index, '(' .. int(from), '+inf', 'LIMIT', 0, WINDOW)) do
    if is_id(id) and (not lowest or lower(id, lowest)) then lowest = id end
  end
  -- An entry whose writer died before it wrote the index row, or is about to write it.
  local before = redis.call('XREVRANGE', stream, lowest and '(' .. lowest or '+', '-', 'COUNT', UNINDEXED)
  local last = 0
  for i, entry in ipairs(before) do
    if not redis.call('ZSCORE', index, entry[1]) and (own_sequence(entry[2]) or 0) > position then last = i end
  end
  if last == #before and last > 0 then
    local next = redis.call('XREVRANGE', stream, '(' .. before[last][1], '-', 'COUNT', 1)
    return next[1] and next[1][1] or '0'
  end
  return before[last + 1] and before[last + 1][1] or '0'
end

-- The sequence up to which the log was trimmed, with its index rows; 0 where that is not certain.
local function trimmed_to(stream, index, high)
  local row = redis.call('ZRANGE', index, 0, 0, 'WITHSCORES')
  local entry = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
  if not row[1] and not entry then return high end
  if row[1] and entry and entry[1] == row[1] then return math.max(tonumber(row[2]) - 1, 0) end
  return 0
end
