-- One bounded step of the search for damage behind the frontier of one partition.
-- KEYS  gmeta, note, s, z, seq, done, due, suspect, redriven, trimmed
-- ARGV  group, partition, prefix of fences, consumer that entries are put under
-- Reply {GROUP_NOT_FOUND} | {LOST} | {OK, now, sequence up to which the log was trimmed, the lowest id
--       that the group has not behind it, repairs, gaps}; repairs: kind, first and last sequence, count
--       of each; gaps: first and last sequence of each run that has neither an index row nor a mark in
--       `done`, and the id of the row behind it ('' = none)
local WINDOW = 200    -- index rows that are looked at
local INVERSION = 1000 -- so far before a row another writer's later row can stand
local BODIES = 100    -- entries that are looked for in the log
local RUN = 2000      -- rows of a run that is gone which are passed at once
local GAPS = 4
local SAMPLE = 50     -- waiting entries that are looked at
local call = redis.call
local group, p, fences, consumer = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local gmeta, note, stream, index, seq, done = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local due, suspects, redriven = KEYS[7], KEYS[8], KEYS[9]
if call('HLEN', gmeta) == 0 then return { GROUP_NOT_FOUND } end
local noted = call('HMGET', note, 'rewind:' .. p, 'since:' .. p, 'heirs:' .. p, p)
local now = now_ms()
local trimmed = tonumber(call('HGET', KEYS[10], p) or '0') or 0
if noted[1] then return { OK, now, trimmed, '', {}, {} } end
local stands, wrong = last_delivered(stream, group)
if wrong then return wrong end
if not stands then return { LOST } end

local repairs, gaps = {}, {}
-- Repairs of one kind are told together.
local function repaired(kind, first, last, count)
  for i = 1, #repairs, 4 do
    if repairs[i] == kind then
      repairs[i + 1] = math.min(repairs[i + 1], first)
      repairs[i + 2] = math.max(repairs[i + 2], last)
      repairs[i + 3] = repairs[i + 3] + count
      return
    end
  end
  for _, part in ipairs({ kind, first, last, count }) do repairs[#repairs + 1] = part end
end

local since, heirs, new = evidence(stream, group, stands, noted[2], noted[3], noted[4])
if new then
  call('HSET', note, vouch(stream, group, p, since, heirs))
  -- Where it stood at the last claim says nothing any more.
  call('HDEL', note, p)
end

-- A row above the counter is another writer's mistake: the frontier does not go there.
local high = tonumber(call('GET', seq) or '')
if not high then high = math.floor(tonumber(call('ZREVRANGE', index, 0, 0, 'WITHSCORES')[2] or '0')) end
local frontier = tonumber(call('HGET', gmeta, 'frontier_p' .. p) or '0') or 0
local function move(to)
  frontier = to
  call('HSET', gmeta, 'frontier_p' .. p, int(to))
end
if frontier > high then
  -- A start behind the end of the log: what is appended up to there would count as settled.
  repaired('frontier', high, frontier, 1)
  move(high)
end
local reached = advance(done, frontier)
if reached > frontier then
  repaired('frontier', frontier + 1, reached, 1)
  move(reached)
end
-- Members at or below the frontier say nothing any more.
local last = call('ZRANGE', done, 4999, 4999)[1]
call('ZREMRANGEBYSCORE', done, '-inf', int(last and math.min(tonumber(last), frontier) or frontier))

-- What another writer took, or dropped in a replay or reset of its own, does not wait any more. Its row
-- would keep a later lease of the entry from being looked at until that time.
for _, id in ipairs(call('ZRANDMEMBER', due, SAMPLE)) do
  local fence = call('HMGET', fences .. id, 'lease_id', 'partition')
  if fence[2] ~= p or fence[1] ~= 'parked' and fence[1] ~= '' then call('ZREM', due, id) end
end

local window = call('ZRANGEBYSCORE', index, '(' .. int(frontier), int(high), 'WITHSCORES', 'LIMIT', 0, WINDOW)
local rows = {}
for i = 1, #window, 2 do
  if is_id(window[i]) then
    rows[#rows + 1] = window[i]
    rows[#rows + 1] = window[i + 1]
  else
    -- No entry can have such an id: without the row its sequence is a gap, or another row's.
    call('ZREM', index, window[i])
  end
end
local bodies = 0
local function is_there(id)
  bodies = bodies + 1
  return call('XRANGE', stream, id, id, 'COUNT', 1)[1] ~= nil
end

-- The highest id of all rows before each row of the window; asked for only when needed.
local highest
local function inverted(at)
  if not highest then
    highest = {}
    local top = '0-0'
    local low = math.max(frontier - INVERSION, 0)
    for _, id in ipairs(call('ZRANGEBYSCORE', index, '(' .. int(low), int(frontier))) do
      if lower(top, id) then top = id end
    end
    for i = 1, #rows, 2 do
      highest[i] = top
      if lower(top, rows[i]) then top = rows[i] end
    end
  end
  return lower(rows[at], highest[at])
end

-- Whether an entry that is pending no more was really delivered by this group, and so settled. What
-- was read since we know the group was; before that, only where it had readers: then all entries in
-- front of where it stood were read, save those that another writer put there late.
local function was_delivered(at)
  return lower(since, rows[at]) or (heirs and not inverted(at))
end

local function settled(sequence)
  call('ZADD', done, int(sequence), int(sequence))
end

-- Puts an entry before the group again: as one that was let go.
local function offer_again(id, sequence, fence, body)
  if body then call('XCLAIM', stream, group, consumer, 0, id, 'FORCE', 'JUSTID') end
  -- The key has no partition. Under another one's fence the pending list is enough: the sweep finds it.
  if not fence[4] or fence[4] == p then
    call('HSET', fences .. id, 'lease_id', '', 'attempt', fence[4] and fence[2] or '0', 'expires_at_ms', '0',
      'partition', p, 'sequence', int(sequence))
    call('ZADD', due, int(now), id)
  end
  repaired('undelivered', sequence, sequence, 1)
end

local function fence_of(id)
  return call('HMGET', fences .. id, 'lease_id', 'attempt', 'expires_at_ms', 'partition')
end

-- An entry at or below where the group stands that is not pending.
local function decide(at, id, sequence)
  local fence = fence_of(id)
  local lease, expires = fence[1], tonumber(fence[3] or '') or 0
  if lease and lease ~= '' and expires > now then
    -- Its holder may still settle it; a parked one keeps its time.
    if lease == 'parked' and fence[4] == p then
      call('ZADD', due, int(expires), id)
      repaired('undelivered', sequence, sequence, 1)
    end
    return
  end
  local body = is_there(id)
  if lease and (fence[4] == p or body) then
    -- It was taken and not settled, or another partition's fence may lie over one that says so. Without
    -- a body the next claim makes it a dead letter.
    offer_again(id, sequence, fence, body)
  elseif not body then
    -- Perhaps it was settled, perhaps it was removed before the group came to it: that is not hidden.
    settled(sequence)
    call('HINCRBY', note, 'missing:' .. p, 1)
    repaired('missing', sequence, sequence, 1)
  elseif was_delivered(at) then
    settled(sequence)
    repaired('settled-row', sequence, sequence, 1)
  else
    offer_again(id, sequence, fence, true)
  end
end

-- Rows that were never delivered and whose entries are gone: this one, and those behind it whose ids are
-- between it and the next entry, up to one that someone has had.
local function pass_missing(id, sequence)
  local next = call('XRANGE', stream, '(' .. id, '+', 'COUNT', 1)[1]
  local run = call('ZRANGEBYSCORE', index, int(sequence), int(high), 'WITHSCORES', 'LIMIT', 0, RUN)
  local marks, to = {}, sequence
  for i = 1, #run, 2 do
    if next and not lower(run[i], next[1]) or call('EXISTS', fences .. run[i]) == 1 then break end
    local gone = int(tonumber(run[i + 1]))
    if not lower(run[i], id) and not call('ZSCORE', done, gone) then
      marks[#marks + 1] = gone
      marks[#marks + 1] = gone
      to = tonumber(gone)
    end
  end
  if #marks > 0 then
    call('ZADD', done, unpack(marks))
    call('HINCRBY', note, 'missing:' .. p, #marks / 2)
    repaired('missing', sequence, to, #marks / 2)
  end
end

-- A run of sequences without index rows: those that are not marked as settled either.
local function gap(first, final, id)
  if first <= trimmed and trimmed < final then
    gap(first, trimmed, id)
    first = trimmed + 1
  end
  local marked = call('ZRANGEBYSCORE', done, int(first), int(final), 'LIMIT', 0, WINDOW)
  for i = 1, #marked + 1 do
    local to = marked[i] and tonumber(marked[i]) - 1 or final
    if first <= to and #gaps < 3 * GAPS then
      for _, part in ipairs({ first, to, id }) do gaps[#gaps + 1] = part end
    end
    first = to + 2
  end
end

local before = frontier
for i = 1, #rows, 2 do
  local id, sequence = rows[i], tonumber(rows[i + 1])
  if sequence > before + 1 then gap(before + 1, sequence - 1, id) end
  before = math.max(before, sequence)
  if not call('ZSCORE', done, int(sequence)) then
    local ahead = lower(stands, id)
    if ahead and (is_there(id) or fence_of(id)[4] ~= p) then
      -- Not delivered yet. That the first of these is there is enough: the others will be seen.
      if not is_there(id) then pass_missing(id, sequence) end
      before = nil
      break
    end
    -- What is ahead and has a fence was delivered before the group was lost with the log.
    local listed = redis.pcall('XPENDING', stream, group, id, id, 1)
    if not (listed.err or listed[1]) and not call('ZSCORE', due, id) and not call('ZSCORE', suspects, id)
      and not call('ZSCORE', redriven, id) then
      decide(i, id, sequence)
    end
    if bodies >= BODIES then
      before = nil
      break
    end
  end
end
if before and #window < 2 * WINDOW and high > before then gap(before + 1, high, '') end
-- That the frontier follows what was mended here is no repair of its own.
reached = advance(done, frontier)
if reached > frontier then move(reached) end
local pending = call('XPENDING', stream, group, '-', '+', 1)[1]
local lowest = pending and lower(pending[1], stands) and pending[1] or stands
return { OK, now, trimmed, lowest, repairs, gaps }
