-- Where a group that is to begin behind these sequences has to stand. Only reads: what is appended
-- later stands behind all that it finds.
-- KEYS  for each partition: s, z, seq
-- ARGV  for each partition: sequence
-- Reply for each partition: frontier, start id, recheck (the sequence up to which settled entries may
--       come by; 0 where none will)
local reply = {}
for i = 1, #ARGV do
  local stream, index, seq = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]
  local high = tonumber(redis.call('GET', seq) or '0') or 0
  local position = math.min(tonumber(ARGV[i]), high)
  local trimmed = trimmed_to(stream, index, high)
  if position > trimmed then
    reply[#reply + 1] = int(position)
    reply[#reply + 1] = start_of(stream, index, position)
    reply[#reply + 1] = int(position)
  else
    -- Of what is left all is above. Below may be what is still being written: it is not passed over.
    for _, part in ipairs({ int(trimmed), '0', '0' }) do reply[#reply + 1] = part end
  end
end
return reply
