-- The first step of a claim: checks that the group is there, and notes where it stands in each
-- partition, for `lease.lua` in the same transaction. With an empty lease id: only looks.
-- KEYS  meta, gmeta, note, then for each partition: s, z, due, suspect
-- ARGV  group, then for each partition: partition, lease id of this claim
-- Reply {STREAM_NOT_FOUND} | {GROUP_NOT_FOUND} | {OK, number of partitions, now, 1 where there are
--       suspects, then for each partition: state, due}; state 0: nothing new, 1: there may be, 2: the
--       group is lost, 3: a rewind is under way; due: when the first parked entry's time comes, -1 where none is parked
local count = redis.call('HGET', KEYS[1], 'partition_count')
if not count then return { STREAM_NOT_FOUND } end
if redis.call('HLEN', KEYS[2]) == 0 then return { GROUP_NOT_FOUND } end
local group, notes = ARGV[1], {}
local reply = { OK, tonumber(count), now_ms(), 0 }
local names = { '' }
for i = 1, (#ARGV - 1) / 2 do
  local p = ARGV[2 * i]
  names[3 * i - 2], names[3 * i - 1], names[3 * i] = 'rewind:' .. p, 'since:' .. p, p
end
local noted = redis.call('HMGET', KEYS[3], unpack(names))
for i = 1, (#ARGV - 1) / 2 do
  local p, lease, k = ARGV[2 * i], ARGV[2 * i + 1], 4 * i
  local at, wrong = last_delivered(KEYS[k], group)
  if wrong then return wrong end
  local state = 2
  if noted[3 * i - 2] then
    state = 3
  elseif at then
    state = 1
    if lease == '' then
      local last = redis.call('ZRANGE', KEYS[k + 1], -1, -1)
      if not last[1] or last[1] == at then state = 0 end
    else
      notes[#notes + 1] = p
      notes[#notes + 1] = lease .. ' ' .. at
      -- What the healing goes by. That all is as before is seen here by the position alone; whether it
      -- is still the same group is looked at there.
      local since, before = noted[3 * i - 1], noted[3 * i]
      local stood = before and string.match(before, ' (%S+)$')
      if not since or (stood and stood ~= at and lower(at, stood)) then
        local from, heirs = evidence(KEYS[k], group, at, since, nil, before)
        for _, part in ipairs({ vouch(KEYS[k], group, p, from, heirs) }) do notes[#notes + 1] = part end
      end
    end
  end
  local due = redis.call('ZRANGE', KEYS[k + 2], 0, 0, 'WITHSCORES')
  -- What a rewind is about to drop is neither to be waited for nor to be taken.
  if state ~= 3 and redis.call('EXISTS', KEYS[k + 3]) == 1 then reply[4] = 1 end
  reply[#reply + 1] = state
  reply[#reply + 1] = state ~= 3 and due[2] and tonumber(due[2]) or -1
end
if #notes > 0 then redis.call('HSET', KEYS[3], unpack(notes)) end
return reply
