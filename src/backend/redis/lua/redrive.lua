-- Delivers the events of dead letters again: in one step a row goes, and a record with a copy of the
-- event takes its place.
-- KEYS  gmeta, note, dlq, then for each partition: s, z, done, due, suspect, redriven, copy
-- ARGV  group, consumer to put them under, prefix of fences, number of the stream's partitions, number
--       of partitions here, these partitions, then for each row: row id, which of these partitions
--       (from 1), sequence, entry id that the row names ('' = none)
-- Reply {GROUP_NOT_FOUND} | {REWINDING} | {OK, for each row: d done · g gone · u under way}
local all, n = tonumber(ARGV[4]), tonumber(ARGV[5])
local places, refused = places_of(4, 6, n)
if refused then return refused end

-- The entry that the event stands in, or stood in: what the row says, unless the index knows better.
local function entry_of(at, sequence, named)
  local row = redis.call('ZRANGEBYSCORE', at.index, sequence, sequence, 'LIMIT', 0, 1)[1]
  if named == '' and row then return row end
  if named ~= '' and (not row or row == named) then return named end
  -- An id that no entry has, and that proves the sequence as our own ids do.
  return '0-' .. int(tonumber(sequence) * all + tonumber(at.partition))
end

-- The fields of the event in a row: what stands before the last `reason` is not ours.
local function event_of(row)
  local last = #row - 1
  while last > 0 and row[last] ~= 'reason' do last = last - 2 end
  local fields = {}
  for i = 1, last > 0 and last - 1 or #row do fields[i] = row[i] end
  return fields
end

local letters = {}
for i = 6 + n, #ARGV, 4 do
  local at, sequence = places[tonumber(ARGV[i + 1])], ARGV[i + 2]
  local row = redis.call('XRANGE', KEYS[3], ARGV[i], ARGV[i])[1]
  local letter = 'g'
  if row then
    local id = entry_of(at, sequence, ARGV[i + 3])
    if underway(at, id, tonumber(sequence)) then
      letter = 'u'
    else
      local in_log = redis.call('XRANGE', at.stream, id, id)[1] ~= nil
      local wrong = redeliver(at, id, tonumber(sequence), event_of(row[2]), in_log)
      if wrong then return wrong end
      redis.call('XDEL', KEYS[3], ARGV[i])
      letter = 'd'
    end
  end
  letters[#letters + 1] = letter
end
return { OK, table.concat(letters) }
