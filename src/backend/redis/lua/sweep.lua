-- One bounded step of the search for entries of one partition whose lease ran out, or that another
-- writer let go, or that were never leased. Two walks, each with a cursor of its own:
-- the fast one asks for entries that were idle as long as the caller's own lease lasts, over a wide
-- range of ids, and so finds the dead of a uniform group behind any number of living ones;
-- the full one looks at every entry, a few at a time, and finds leases of any other length.
-- A third walk goes over the records of redriven events, which need not be pending.
-- KEYS  gmeta, s, z, due, suspect, note, done, redriven, copy
-- ARGV  group, consumer, lease in ms, prefix of fences, partition, lease id, how many at most,
--       cursor of the fast walk, of the full walk, of the walk over records ('-' = from the start)
-- Reply {GROUP_NOT_FOUND} | {LOST} | {OK, the three cursors, then id, letter, attempt, former
--       holder, former failure of each entry}; letters L, E, S: see retake
local SPAN = 20000 -- sequences that a step of the fast walk covers: XPENDING visits all in between
local FAST, FULL, RECORDS = 500, 100, 100 -- entries that a step looks at
local group, room, lease_ms = ARGV[1], tonumber(ARGV[7]), ARGV[3]
local stream, index, due, suspects = KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local max = tonumber(redis.call('HGET', KEYS[1], 'max_attempts') or '')
if not max and redis.call('HLEN', KEYS[1]) == 0 then return { GROUP_NOT_FOUND } end
local now = now_ms()
local take = { stream = stream, group = group, consumer = ARGV[2], fences = ARGV[4], partition = ARGV[5],
  lease = ARGV[6], expires = int(now + tonumber(lease_ms)), now = now, max = max or 5, due = due,
  suspects = suspects }
local reply = { OK, '-', '-', '-' }
if redis.call('HEXISTS', KEYS[6], 'rewind:' .. take.partition) == 1 then return reply end

-- Looks at one entry; returns whether there is no room for more.
local function visit_one(id, deliveries)
  -- What waits for its time looks idle too, and a suspect waits for its own claim.
  if redis.call('ZSCORE', due, id) or redis.call('ZSCORE', suspects, id) then return false end
  local letter, attempt, holder, failure = retake(take, id, deliveries, '')
  if letter == 'B' then return false end
  for _, part in ipairs({ id, letter, int(attempt), holder, failure }) do reply[#reply + 1] = part end
  if letter ~= 'S' then room = room - 1 end
  return room <= 0
end

-- Looks at rows of XPENDING; returns the id of the last one looked at where it stopped early.
local function visit(rows)
  for _, row in ipairs(rows) do
    if visit_one(row[1], row[4]) then return row[1] end
  end
  return nil
end

-- Whether another writer has settled a redriven event: it acks, and takes the fence away, but knows
-- nothing of the record. A body that is gone is not pending either, but has its fence.
local function settled_by_other(id, sequence)
  if redis.call('HGET', take.fences .. id, 'partition') == take.partition then return false end
  if redis.call('ZSCORE', due, id) or redis.call('ZSCORE', suspects, id) then return false end
  if redis.call('XPENDING', stream, group, id, id, 1)[1] then return false end
  if not redis.call('XRANGE', stream, id, id)[1] then return false end
  local frontier = tonumber(redis.call('HGET', KEYS[1], 'frontier_p' .. take.partition) or '0') or 0
  return sequence <= frontier or redis.call('ZSCORE', KEYS[7], int(sequence)) and true
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
reply[4] = ARGV[10]
if room > 0 then
  local from = ARGV[10] == '-' and '-inf' or ARGV[10]
  local rows = redis.call('ZRANGEBYSCORE', KEYS[8], from, '+inf', 'WITHSCORES', 'LIMIT', 0, RECORDS)
  local stopped
  for i = 1, #rows, 2 do
    local id, sequence = rows[i], tonumber(rows[i + 1])
    if settled_by_other(id, sequence) then
      redis.call('ZREM', KEYS[8], id)
      redis.call('HDEL', KEYS[9], id)
    elseif visit_one(id, 1) then
      stopped = sequence
      break
    end
    if i == 2 * RECORDS - 1 then stopped = sequence end
  end
  reply[4] = stopped and '(' .. int(stopped) or '-'
end
return reply
