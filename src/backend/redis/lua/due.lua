-- Leases parked entries whose time has come.
-- KEYS  gmeta, note, then for each partition: s, due, suspect
-- ARGV  group, consumer, lease in ms, prefix of fences, how many at most, then for each partition:
--       partition, lease id
-- Reply {GROUP_NOT_FOUND} | {OK, now, then for each partition {due, then id, letter, attempt, former
--       holder, former failure of each entry}}; due: when the next one's time comes, -1: none parked;
--       letters L, E, S: see retake
local group, room = ARGV[1], tonumber(ARGV[5])
local max = tonumber(redis.call('HGET', KEYS[1], 'max_attempts') or '')
if not max and redis.call('HLEN', KEYS[1]) == 0 then return { GROUP_NOT_FOUND } end
max = max or 5
local now = now_ms()
local expires = int(now + tonumber(ARGV[3]))
local partitions = (#ARGV - 5) / 2
local rows, rewinding = {}, {}
for i = 1, partitions do
  rows[i] = { -1 }
  rewinding[i] = redis.call('HEXISTS', KEYS[2], 'rewind:' .. ARGV[4 + 2 * i]) == 1
end

local function take_some(i, limit)
  if rewinding[i] then return 0 end
  local stream, due, suspects = KEYS[3 * i], KEYS[3 * i + 1], KEYS[3 * i + 2]
  local take = { stream = stream, group = group, consumer = ARGV[2], fences = ARGV[4],
    partition = ARGV[4 + 2 * i], lease = ARGV[5 + 2 * i], expires = expires, now = now, max = max,
    due = due, suspects = suspects }
  local taken, row = 0, rows[i]
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', due, '-inf', int(now), 'LIMIT', 0, limit)) do
    local fence = redis.call('HMGET', take.fences .. id, 'lease_id', 'partition')
    if fence[2] == take.partition and (fence[1] == 'parked' or fence[1] == '') then
      local letter, attempt, holder, failure = retake(take, id, 1, 'due')
      for _, part in ipairs({ id, letter, int(attempt), holder, failure }) do row[#row + 1] = part end
      if letter ~= 'S' then taken = taken + 1 end
    else
      -- Another writer took it, or settled it: it is not parked any more.
      redis.call('ZREM', due, id)
    end
  end
  return taken
end

-- First everyone's share, then what is left over.
local share = math.max(math.floor(room / math.max(partitions, 1)), 1)
for i = 1, partitions do
  if room > 0 then room = room - take_some(i, math.min(share, room)) end
end
for i = 1, partitions do
  if room > 0 then room = room - take_some(i, room) end
end
local reply = { OK, now }
for i = 1, partitions do
  local due = redis.call('ZRANGE', KEYS[3 * i + 1], 0, 0, 'WITHSCORES')
  if due[2] and not rewinding[i] then rows[i][1] = tonumber(due[2]) end
  reply[2 + i] = rows[i]
end
return reply
