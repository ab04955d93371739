-- Delivers settled events of the log again, each with a record and a copy as a redrive has.
-- KEYS  gmeta, note, then for each partition: s, z, done, due, suspect, redriven, copy
-- ARGV  group, consumer to put them under, prefix of fences, number of partitions here, these
--       partitions, then for each event: which of these partitions (from 1), sequence
-- Reply {GROUP_NOT_FOUND} | {REWINDING} | {OK, for each event: d done · g gone · u under way}
local n = tonumber(ARGV[4])
local places, refused = places_of(3, 5, n)
if refused then return refused end

local letters = {}
for i = 5 + n, #ARGV, 2 do
  local at, sequence = places[tonumber(ARGV[i])], ARGV[i + 1]
  local id = redis.call('ZRANGEBYSCORE', at.index, sequence, sequence, 'LIMIT', 0, 1)[1]
  local entry = id and redis.call('XRANGE', at.stream, id, id)[1]
  local letter = 'g'
  if entry then
    letter = 'u'
    if not underway(at, id, tonumber(sequence)) then
      local wrong = redeliver(at, id, tonumber(sequence), entry[2], true)
      if wrong then return wrong end
      letter = 'd'
    end
  end
  letters[#letters + 1] = letter
end
return { OK, table.concat(letters) }
