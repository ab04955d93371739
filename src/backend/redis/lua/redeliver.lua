-- Delivers settled events of the log again, each with a record and a copy as a redrive has.
-- KEYS  gmeta, note, then for each partition: s, z, done, due, suspect, redriven, copy
-- ARGV  group, consumer to put them under, prefix of fences, number of partitions here, these
--       partitions, then for each event: which of these partitions (from 1), sequence
-- Reply {GROUP_NOT_FOUND} | {REWINDING} | {OK, for each event: d done · g gone · u under way}
local group, n = ARGV[1], tonumber(ARGV[4])
if redis.call('HLEN', KEYS[1]) == 0 then return { GROUP_NOT_FOUND } end
local places = {}
for i = 1, n do
  local p, k = ARGV[4 + i], 3 + 7 * (i - 1)
  if redis.call('HEXISTS', KEYS[2], 'rewind:' .. p) == 1 then return { REWINDING } end
  places[i] = place_of(k, p, group, ARGV[2], ARGV[3], redis.call('HGET', KEYS[1], 'frontier_p' .. p))
  -- Another type under our keys is refused here, before the first write.
  for _, key in ipairs({ KEYS[k + 3], KEYS[k + 4], KEYS[k + 5] }) do redis.call('ZCARD', key) end
  redis.call('HLEN', KEYS[k + 6])
end

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
