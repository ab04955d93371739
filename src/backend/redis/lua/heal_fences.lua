-- Removes those of some fences that belong to nothing: what they are about is neither pending nor
-- waits, no lease holds it, and it is settled, or there is no such entry at all.
-- KEYS  gmeta, note, then for each partition: s, z, done, due, suspect, redriven
-- ARGV  group, prefix of fences, entry ids
-- Reply number of fences removed
local call = redis.call
local group, fences = ARGV[1], ARGV[2]
if call('HLEN', KEYS[1]) == 0 then return 0 end
local partitions, now = (#KEYS - 2) / 6, now_ms()

local function belongs(id, q)
  local k = 3 + 6 * q
  -- What a rewind leaves it looks at itself.
  if call('HEXISTS', KEYS[2], 'rewind:' .. q) == 1 then return true end
  local stream, index, done = KEYS[k], KEYS[k + 1], KEYS[k + 2]
  local listed = redis.pcall('XPENDING', stream, group, id, id, 1)
  if not listed.err and listed[1] then return true end
  for n = 3, 5 do
    if call('ZSCORE', KEYS[k + n], id) then return true end
  end
  local sequence = tonumber(call('ZSCORE', index, id) or '')
  -- Without an index row it may be an entry whose row is still to come.
  if not sequence then return call('XRANGE', stream, id, id, 'COUNT', 1)[1] ~= nil end
  local frontier = tonumber(call('HGET', KEYS[1], 'frontier_p' .. q) or '0') or 0
  return sequence > frontier and not call('ZSCORE', done, int(sequence))
end

local removed = 0
for i = 3, #ARGV do
  local id = ARGV[i]
  local fence = call('HMGET', fences .. id, 'partition', 'lease_id', 'expires_at_ms')
  local owner = tonumber(fence[1] or '')
  local keep = fence[2] and fence[2] ~= '' and (tonumber(fence[3] or '') or 0) > now
  if keep then
    -- Its holder may still settle.
  elseif owner and owner < partitions then
    keep = belongs(id, owner)
  else
    for q = 0, partitions - 1 do keep = keep or belongs(id, q) end
  end
  if not keep then removed = removed + call('DEL', fences .. id) end
end
return removed
