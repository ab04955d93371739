-- Leases one suspect: an entry on its last attempt whose earlier one ended by expiry.
-- KEYS  gmeta, note, then for each partition: s, due, suspect, redriven
-- ARGV  group, consumer, lease in ms, prefix of fences, then for each partition: partition, lease id
-- Reply {GROUP_NOT_FOUND} | {OK, 1 where suspects are left, then for each partition {id, letter,
--       attempt, former holder, former failure of each entry}}; letters L (at most one in all), E: see
--       retake
local LOOK = 16 -- suspects of a partition that a call looks at
local group = ARGV[1]
local max = tonumber(redis.call('HGET', KEYS[1], 'max_attempts') or '')
if not max and redis.call('HLEN', KEYS[1]) == 0 then return { GROUP_NOT_FOUND } end
local now = now_ms()
local expires = int(now + tonumber(ARGV[3]))
local reply, leased = { OK, 0 }, false
for i = 1, (#ARGV - 4) / 2 do
  local stream, due, suspects, row = KEYS[4 * i - 1], KEYS[4 * i], KEYS[4 * i + 1], {}
  local take = { stream = stream, group = group, consumer = ARGV[2], fences = ARGV[4],
    partition = ARGV[3 + 2 * i], lease = ARGV[4 + 2 * i], expires = expires, now = now, max = max or 5,
    due = due, suspects = suspects }
  local rewinding = redis.call('HEXISTS', KEYS[2], 'rewind:' .. take.partition) == 1
  if not leased and not rewinding then
    for _, id in ipairs(redis.call('ZRANGE', suspects, 0, LOOK - 1)) do
      local pending = redis.pcall('XPENDING', stream, group, id, id, 1)
      local listed = not pending.err and pending[1]
      -- A redriven event is not pending once its body is gone.
      if not listed and not redis.call('ZSCORE', KEYS[4 * i + 2], id) then
        -- Settled by its old holder, or the group was lost: then it comes again by itself.
        redis.call('ZREM', suspects, id)
      else
        local letter, attempt, holder, failure = retake(take, id, listed and listed[4] or 1, 'alone')
        if letter == 'B' then
          redis.call('ZREM', suspects, id) -- renewed by its old holder, or taken by another writer
        else
          for _, part in ipairs({ id, letter, int(attempt), holder, failure }) do row[#row + 1] = part end
          if letter == 'L' then leased = true break end
        end
      end
    end
  end
  if not rewinding and redis.call('EXISTS', suspects) == 1 then reply[2] = 1 end
  reply[2 + i] = row
end
return reply
