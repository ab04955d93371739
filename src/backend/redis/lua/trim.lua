-- Removes old entries of one partition, with their index rows and what else is left of them.
-- KEYS  meta, s, z, trimmed
-- ARGV  partition, what the stream's keys of groups begin with ('rheo:{handle}:'), stream, number of
--       entries that stay ('' = any), age in ms that stays ('' = any), sequence up to which entries go
--       ('' = none), 1 to remove also what is not settled, then the groups that are known
-- Reply {STREAM_NOT_FOUND} | {OK, entries removed, 1 where there may be more, group that holds the
--       next one ('' = none), the lowest sequence that it needs}
local STEP = 500 -- entries of one step
local RECORDS = 10 -- redriven events of a group that are looked at
local call = redis.call
local p, prefix, name = ARGV[1], ARGV[2], ARGV[3]
local length_max, age, upto, force = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7] == '1'
local stream, index = KEYS[2], KEYS[3]
if not call('HGET', KEYS[1], 'partition_count') then return { STREAM_NOT_FOUND } end
local oldest = age and now_ms() - age
local function key(kind, group) return prefix .. kind .. ':' .. name .. ':' .. group end

-- What each group still needs: everything above its bound.
local groups, known = {}, {}
local function add(group, delivered)
  if not known[group] then
    known[group] = { name = group }
    groups[#groups + 1] = known[group]
  end
  known[group].delivered = delivered
end
for i = 8, #ARGV do add(ARGV[i]) end
local listed = redis.pcall('XINFO', 'GROUPS', stream)
if listed.err then
  if not string.find(listed.err, 'no such key', 1, true) then return listed end
  listed = {}
end
for _, info in ipairs(listed) do
  local fields = {}
  for i = 1, #info, 2 do fields[info[i]] = info[i + 1] end
  add(fields['name'], fields['last-delivered-id'])
end

-- Of a group that is none of Rheo's: the first entry that it has not acked, by its id.
local function first_needed(group, delivered)
  local pending = call('XPENDING', stream, group, '-', '+', 1)[1]
  if pending then return pending[1] end
  local entry = call('XRANGE', stream, '(' .. delivered, '+', 'COUNT', 1)[1]
  return entry and entry[1]
end

-- Below this id no group that the store knows has anything left to do.
local unread
local function note_unread(group)
  local pending = call('XPENDING', stream, group.name, '-', '+', 1)[1]
  for _, id in ipairs({ group.delivered, pending and pending[1] }) do
    if not unread or lower(id, unread) then unread = id end
  end
end

-- The group that has an entry still before it though its frontier is past the sequence: another writer
-- gave the sequence to a second entry.
local function unsettled_twin(id)
  if not unread or lower(id, unread) then return nil end
  for _, group in ipairs(groups) do
    if group.frontier and group.delivered and not group.leaves then
      if call('XPENDING', stream, group.name, id, id, 1)[1] then return group.name end
      if lower(group.delivered, id) and call('XRANGE', stream, id, id, 'COUNT', 1)[1] then return group.name end
    end
  end
end

local limit, holder = math.huge, ''
local first_foreign, foreign
for _, group in ipairs(groups) do
  local gmeta, note = key('gmeta', group.name), key('note', group.name)
  if call('HLEN', gmeta) > 0 then
    group.frontier = tonumber(call('HGET', gmeta, 'frontier_p' .. p) or '0') or 0
    local bound = group.frontier
    local kind, target = string.match(call('HGET', note, 'rewind:' .. p) or '', '^(%a+) (%d+)$')
    if kind == 'delete' then
      bound = math.huge
      group.leaves = true
    elseif kind then
      bound = math.min(bound, tonumber(target))
    end
    for _, id in ipairs(call('ZRANGE', key('redriven', group.name) .. ':' .. p, 0, RECORDS - 1)) do
      -- One that the log has no more lives by its copy.
      local sequence = tonumber(call('ZSCORE', index, id) or '')
      if sequence then
        bound = math.min(bound, sequence - 1)
        break
      end
    end
    group.bound = bound
    if group.delivered and not force and not group.leaves then note_unread(group) end
  elseif group.delivered then
    local id = first_needed(group.name, group.delivered)
    if id and (not first_foreign or lower(id, first_foreign)) then first_foreign, foreign = id, group.name end
  end
  if group.bound and group.bound < limit then limit, holder = group.bound, group.name end
end

-- The oldest entries that are to go, and may.
local step = math.max(math.min(STEP, math.floor(4 * STEP / math.max(#groups, 1))), 10)
local rows = call('ZRANGE', index, 0, step - 1, 'WITHSCORES')
local over = length_max and call('XLEN', stream) - length_max or 0
local bounded = length_max or upto or oldest
local first = bounded and call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
local ids, sequences, invalid, held, needed = {}, {}, {}, '', 0
for i = 1, #rows, 2 do
  local id, sequence = rows[i], tonumber(rows[i + 1])
  -- A row whose entry others have trimmed goes with what is left of it.
  local stale = bounded and (not is_id(id) or not first or lower(id, first[1]))
  local ms = tonumber(string.match(id, '^(%d+)-') or '')
  if not (stale or over > 0 or (upto and sequence <= upto) or (oldest and ms and ms < oldest)) then break end
  if not force then
    if sequence > limit then held, needed = holder, limit + 1 end
    if first_foreign and not stale and not lower(id, first_foreign) then held, needed = foreign, sequence end
    local twin = needed == 0 and not stale and unsettled_twin(id)
    if twin then held, needed = twin, sequence end
    if needed > 0 then break end
  end
  if not stale then over = over - 1 end
  if is_id(id) then
    ids[#ids + 1] = id
    sequences[#sequences + 1] = sequence
  else
    invalid[#invalid + 1] = id
  end
end
local more = #ids + #invalid == step and 1 or 0
-- A full store refuses a script only at its first write, and never this one, which removes nothing.
if #ids > 0 then call('XDEL', stream, '0-0') end
if #invalid > 0 then call('ZREM', index, unpack(invalid)) end
if #ids == 0 then return { OK, 0, more, held, needed } end

-- What a group knows of these entries. What it has not settled counts as missing, unless it lives by
-- its copy.
for _, group in ipairs(groups) do
  if group.frontier then
    local fences = prefix .. 'fence:' .. name .. ':' .. group.name .. ':'
    local done, note = key('done', group.name) .. ':' .. p, key('note', group.name)
    local redriven = key('redriven', group.name) .. ':' .. p
    local leftovers, lost, marks = {}, {}, {}
    local records = call('ZCARD', redriven) > 0
    for i, id in ipairs(ids) do
      if not (records and call('ZSCORE', redriven, id)) then
        leftovers[#leftovers + 1] = id
        if sequences[i] > group.frontier and not call('ZSCORE', done, int(sequences[i])) then
          lost[#lost + 1] = id
          local text = int(sequences[i])
          marks[#marks + 1] = text
          marks[#marks + 1] = text
        end
      end
    end
    local keys = {}
    for i, id in ipairs(leftovers) do keys[i] = fences .. id end
    if #keys > 0 and call('EXISTS', unpack(keys)) > 0 then
      for _, fence in ipairs(keys) do
        local owner = call('HGET', fence, 'partition')
        if not owner or owner == p then call('DEL', fence) end
      end
    end
    if #lost > 0 then
      call('ZADD', done, unpack(marks))
      call('XACK', stream, group.name, unpack(lost))
      call('ZREM', key('due', group.name) .. ':' .. p, unpack(lost))
      call('ZREM', key('suspect', group.name) .. ':' .. p, unpack(lost))
      call('HINCRBY', note, 'missing:' .. p, #lost)
      if call('HEXISTS', note, 'rewind:' .. p) == 0 then
        call('HSET', key('gmeta', group.name), 'frontier_p' .. p, int(advance(done, group.frontier)))
      end
    end
  end
end
local removed = call('XDEL', stream, unpack(ids))
call('ZREM', index, unpack(ids))
local trimmed = tonumber(call('HGET', KEYS[4], p) or '0') or 0
call('HSET', KEYS[4], p, int(math.max(trimmed, sequences[#sequences])))
return { OK, removed, more, held, needed }
