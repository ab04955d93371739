-- Redriven events that the pending list does not name: their bodies are gone, or the group was lost.
-- KEYS  s, redriven
-- ARGV  group
-- Reply id and sequence of each; of very many redriven ones only the first are looked at
local LOOK = 1000
local reply = {}
local rows = redis.call('ZRANGE', KEYS[2], 0, LOOK - 1, 'WITHSCORES')
for i = 1, #rows, 2 do
  local pending = redis.pcall('XPENDING', KEYS[1], ARGV[1], rows[i], rows[i], 1)
  if pending.err and not string.find(pending.err, 'NOGROUP', 1, true) then return pending end
  if pending.err or not pending[1] then
    reply[#reply + 1] = rows[i]
    reply[#reply + 1] = rows[i + 1]
  end
end
return reply
