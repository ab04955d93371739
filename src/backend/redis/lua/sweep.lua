-- One bounded step of the search for entries of one partition whose lease ran out, or that another
-- writer let go, or that were never leased. Two walks, each with a cursor of its own:
-- the fast one asks for entries that were idle as long as the caller's own lease lasts, over a wide
-- range of ids, and so finds the dead of a uniform group behind any number of living ones;
-- the full one looks at every entry, a few at a time, and finds leases of any other length.
-- KEYS  gmeta, s, z, due, suspect
-- ARGV  group, consumer, lease in ms, prefix of fences, partition, lease id, how many at most,
--       cursor of the fast walk, cursor of the full walk ('-' = from the start)
-- Reply {GROUP_NOT_FOUND} | {LOST} | {OK, fast cursor, full cursor, then id, letter, attempt, former
--       holder, former failure of each entry}; letters L, E, S: see retake
local SPAN = 20000 -- sequences that a step of the fast walk covers: XPENDING visits all in between
local FAST, FULL = 500, 100 -- entries that a step looks at
local group, room, lease_ms = ARGV[1], tonumber(ARGV[7]), ARGV[3]
local stream, index, due, suspects = KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local max = tonumber(redis.call('HGET', KEYS[1], 'max_attempts') or '')
if not max and redis.call('HLEN', KEYS[1]) == 0 then return { GROUP_NOT_FOUND } end
local now = now_ms()
local take = { stream = stream, group = group, consumer = ARGV[2], fences = ARGV[4], partition = ARGV[5],
  lease = ARGV[6], expires = int(now + tonumber(lease_ms)), now = now, max = max or 5, due = due,
  suspects = suspects }
local reply = { OK, '-', '-' }

-- Looks at rows of XPENDING; returns the id of the last one looked at where it stopped early.
local function visit(rows)
  for _, row in ipairs(rows) do
    local id = row[1]
    -- What waits for its time looks idle too, and a suspect waits for its own claim.
    if not redis.call('ZSCORE', due, id) and not redis.call('ZSCORE', suspects, id) then
      local letter, attempt, holder, failure = retake(take, id, row[4], '')
      if letter ~= 'B' then
        for _, part in ipairs({ id, letter, int(attempt), holder, failure }) do reply[#reply + 1] = part end
        if letter ~= 'S' then room = room - 1 end
        if room <= 0 then return id end
      end
    end
  end
  return nil
end

local function parts(id)
  local ms, low = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(low)
end

-- The end of the range that a step of the fast walk covers from this pending entry on.
local function range_end(head)
  local sequence = redis.call('ZSCORE', index, head)
  if not sequence then return head end
  local row = redis.call('ZRANGEBYSCORE', index, int(tonumber(sequence) + SPAN), '+inf', 'LIMIT', 0, 1)
  if not row[1] then return '+' end
  -- Another writer's entries can stand in another order than their sequences.
  local ms, low = parts(row[1])
  local head_ms, head_low = parts(head)
  if ms < head_ms or (ms == head_ms and low < head_low) then return head end
  return row[1]
end

local head = redis.pcall('XPENDING', stream, group, ARGV[8], '+', 1)
if head.err then
  if string.find(head.err, 'NOGROUP', 1, true) then return { LOST } end
  return head
end
if head[1] then
  local to = range_end(head[1][1])
  local rows = redis.call('XPENDING', stream, group, 'IDLE', lease_ms, head[1][1], to, FAST)
  local stopped = visit(rows)
  if not stopped and #rows == FAST then stopped = rows[#rows][1] end
  if stopped then
    reply[2] = '(' .. stopped
  elseif to ~= '+' then
    reply[2] = '(' .. to
  end
end
reply[3] = ARGV[9]
if room > 0 then
  local rows = redis.call('XPENDING', stream, group, ARGV[9], '+', FULL)
  local stopped = visit(rows)
  if not stopped and #rows == FULL then stopped = rows[#rows][1] end
  reply[3] = stopped and '(' .. stopped or '-'
end
return reply
