-- One bounded step of a rewind in one partition. It goes over what is pending, over the records of
-- redriven events, over leftover fences and over `done`, and takes out what is in range; how far it
-- came stands in the note, `rewound:`. A step that finds nothing left moves the group and removes the
-- marker. For a deletion that is left to `delete_group.lua`.
-- KEYS  gmeta, note, s, z, seq, done, due, suspect, redriven, copy
-- ARGV  group, partition, prefix of fences
-- Reply {GROUP_NOT_FOUND} | {OK, 1 where nothing is left here, pending entries that were dropped}
local PENDING, RECORDS, FENCES, SETTLED = 500, 200, 1000, 5000
local group, p, fences = ARGV[1], ARGV[2], ARGV[3]
local gmeta, note, stream, index, seq, done = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local due, suspects, redriven, copies = KEYS[7], KEYS[8], KEYS[9], KEYS[10]
if redis.call('HLEN', gmeta) == 0 then return { GROUP_NOT_FOUND } end
local noted = redis.call('HMGET', note, 'rewind:' .. p, 'rewound:' .. p, 'recheck:' .. p, 'since:' .. p,
  'heirs:' .. p)
local kind, target = string.match(noted[1] or '', '^(%a+) (%d+)$')
if not kind then return { OK, 1, 0 } end
target = tonumber(target)
-- Where each walk stands. `end` behind it: nothing is left of this partition, for now.
local pending_from, record_from, fence_from = string.match(noted[2] or '', '^(%S+) (%S+) (%S+)')
local at = { fences = fences, partition = p, now = now_ms(), due = due, suspects = suspects }
local records = redis.call('ZCARD', redriven)

local function in_log(id)
  return redis.call('XRANGE', stream, id, id)[1] ~= nil
end

-- Whether a redriven event stays one: where it lies at or below the target, and where the log has it no
-- more and only its record can bring it. A deletion keeps nothing.
local function stays(id, sequence)
  return kind ~= 'delete' and (sequence <= target or not in_log(id))
end

local function kept_record(id)
  local sequence = records > 0 and tonumber(redis.call('ZSCORE', redriven, id) or '')
  return sequence and stays(id, sequence)
end

-- Removes all that is known of entries but their records.
local function drop(ids)
  if #ids == 0 then return end
  local keys = {}
  for _, id in ipairs(ids) do
    -- The key has no partition: another one's fence is left alone.
    local owner = redis.call('HGET', fences .. id, 'partition')
    if not owner or owner == p then keys[#keys + 1] = fences .. id end
  end
  if #keys > 0 then redis.call('DEL', unpack(keys)) end
  redis.call('ZREM', due, unpack(ids))
  redis.call('ZREM', suspects, unpack(ids))
end

local function drop_pending()
  if not pending_from then
    pending_from = kind == 'replay' and '(' .. start_of(stream, index, target) or '-'
  end
  -- With records among them each costs a look at the log.
  local limit = records > 0 and RECORDS or PENDING
  local rows = redis.pcall('XPENDING', stream, group, pending_from, '+', limit)
  if rows.err then
    if string.find(rows.err, 'NOGROUP', 1, true) then return 0, false, true end
    return 0, false, false, rows
  end
  local ids, bodiless = {}, {}
  for _, row in ipairs(rows) do
    local id, keep = row[1], kept_record(row[1])
    if keep then
      -- A claim takes what is pending behind the place that the group is moved to for what it has read.
      if not in_log(id) then bodiless[#bodiless + 1] = id end
    elseif kind == 'replay' then
      local sequence = sequence_of(stream, index, id)
      keep = sequence and sequence <= target
    end
    if not keep then ids[#ids + 1] = id end
  end
  if #rows > 0 then pending_from = '(' .. rows[#rows][1] end
  if #ids > 0 then redis.call('XACK', stream, group, unpack(ids)) end
  if #bodiless > 0 then redis.call('XACK', stream, group, unpack(bodiless)) end
  drop(ids)
  return #ids, #rows == limit, false
end

-- What stays waits, its attempts afresh; only a replay leaves alone what is at or below its target.
-- Returns whether there may be more.
local function drop_records()
  local rows = redis.call('ZRANGEBYSCORE', redriven, record_from, '+inf', 'WITHSCORES', 'LIMIT', 0, RECORDS)
  local ids = {}
  for i = 1, #rows, 2 do
    local id, sequence = rows[i], tonumber(rows[i + 1])
    if not stays(id, sequence) then
      ids[#ids + 1] = id
    else
      local fence = redis.call('HMGET', fences .. id, 'lease_id', 'attempt', 'partition')
      if fence[1] ~= '' or fence[2] ~= '0' or fence[3] ~= p then offer(at, id, sequence) end
    end
    record_from = '(' .. int(sequence)
  end
  drop(ids)
  if #ids > 0 then
    redis.call('ZREM', redriven, unpack(ids))
    redis.call('HDEL', copies, unpack(ids))
  end
  return #rows == 2 * RECORDS
end

-- A group that was lost has fences that no pending list names. Returns whether there may be more.
local function drop_fences()
  local rows = redis.call('ZRANGEBYSCORE', index, fence_from, '+inf', 'WITHSCORES', 'LIMIT', 0, FENCES)
  local ids = {}
  for i = 1, #rows, 2 do
    if redis.call('HGET', fences .. rows[i], 'partition') == p and not kept_record(rows[i]) then
      ids[#ids + 1] = rows[i]
    end
  end
  drop(ids)
  if #rows > 0 then fence_from = '(' .. int(tonumber(rows[#rows])) end
  return #rows == 2 * FENCES
end

-- Settled sequences above the target; for a reset those below say nothing any more. Returns whether
-- there may be more.
local function drop_settled()
  local low = kind == 'replay' and '(' .. int(target) or '-inf'
  local first = redis.call('ZREVRANGE', done, SETTLED - 1, SETTLED - 1)[1]
  if first and (kind ~= 'replay' or tonumber(first) > target) then
    redis.call('ZREMRANGEBYSCORE', done, first, '+inf')
    return true
  end
  redis.call('ZREMRANGEBYSCORE', done, low, '+inf')
  return false
end

local dropped, more, lost, wrong = drop_pending()
if wrong then return wrong end
record_from = record_from or (kind == 'replay' and '(' .. int(target) or '-inf')
fence_from = fence_from or record_from
if not more then more = drop_records() end
if not more and (lost or noted[3]) then more = drop_fences() end
if not more then more = drop_settled() end
if more or kind == 'delete' then
  local walks = pending_from .. ' ' .. record_from .. ' ' .. fence_from
  redis.call('HSET', note, 'rewound:' .. p, more and walks or walks .. ' end')
  return { OK, more and 0 or 1, dropped }
end

-- Nothing is left, in this very step: now the group moves. Had it moved before, what another writer
-- reads in between would have been dropped behind it.
local frontier = target
if kind == 'replay' then
  frontier = advance(done, math.min(tonumber(redis.call('HGET', gmeta, 'frontier_p' .. p) or '0') or 0, target))
end
local high = tonumber(redis.call('GET', seq) or '0') or 0
local trimmed = trimmed_to(stream, index, high)
-- What was trimmed cannot come again, and stays settled.
if frontier >= target then frontier = math.max(frontier, trimmed) end
local recheck = target > trimmed and target or 0
local start
if lost then
  -- What is unsettled below the target was lost with the group, too.
  start = start_of(stream, index, frontier, kind == 'replay' and done)
  if kind == 'replay' then recheck = high end
  redis.call('XGROUP', 'CREATE', stream, group, start, 'MKSTREAM')
else
  start = start_of(stream, index, target)
  local stands = last_delivered(stream, group)
  -- A replay never moves it forward, over what it has not read yet.
  if kind == 'replay' and lower(stands, start) then start = stands end
  redis.call('XGROUP', 'SETID', stream, group, start)
end
-- A replay keeps what is known of what the group had read below its target.
local since, heirs = start, false
if kind == 'replay' and not lost then
  local witnessed, readers = consumers_of(stream, group)
  if not noted[4] then
    heirs = readers
  elseif witnessed then
    heirs = noted[5] == '1'
    if lower(noted[4], start) then since = noted[4] end
  end
end
redis.call('HSET', gmeta, 'frontier_p' .. p, int(frontier), 'cursor_p' .. p, int(frontier))
redis.call('HSET', note, vouch(stream, group, p, since, heirs))
if recheck > 0 then
  if kind == 'replay' then recheck = math.max(recheck, tonumber(noted[3] or '') or 0) end
  redis.call('HSET', note, 'recheck:' .. p, int(recheck))
else
  redis.call('HDEL', note, 'recheck:' .. p)
end
redis.call('HDEL', note, 'rewind:' .. p, 'rewound:' .. p, p)
return { OK, 1, dropped }
