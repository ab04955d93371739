-- The last step of a deletion: the group goes, where nothing is left of it in any partition.
-- KEYS  gmeta, note, dlq, then for each partition: s, done, due, suspect, redriven, copy
-- ARGV  group
-- Reply 1 where it is gone, 0 where something has come to be pending meanwhile
local WIDTH = 6
local group, again = ARGV[1], {}
for k = 4, #KEYS, WIDTH do
  local rows = redis.pcall('XPENDING', KEYS[k], group, '-', '+', 1)
  if rows.err and not string.find(rows.err, 'NOGROUP', 1, true) then return rows end
  if not rows.err and rows[1] then again[#again + 1] = 'rewound:' .. int((k - 4) / WIDTH) end
end
if #again > 0 then
  redis.call('HDEL', KEYS[2], unpack(again))
  return 0
end
for k = 4, #KEYS, WIDTH do
  local gone = redis.pcall('XGROUP', 'DESTROY', KEYS[k], group)
  if type(gone) == 'table' and gone.err and not string.find(gone.err, 'requires the key to exist', 1, true) then
    return gone
  end
  redis.call('UNLINK', KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], KEYS[k + 4], KEYS[k + 5])
end
redis.call('UNLINK', KEYS[3], KEYS[2])
redis.call('DEL', KEYS[1])
return 1
