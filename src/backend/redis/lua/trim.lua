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
local function add(group, foreign)
  if known[group] then return end
  known[group] = true
  groups[#groups + 1] = { name = group, foreign = foreign }
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

-- Of a group that is none of Rheo's: the first entry that it has not acked.
local function foreign_bound(group, delivered)
  local id = call('XPENDING', stream, group, '-', '+', 1)[1]
  id = id and id[1]
  if not id then
    local entry = call('XRANGE', stream, '(' .. delivered, '+', 'COUNT', 1)[1]
    id = entry and entry[1]
  end
  local sequence = id and tonumber(call('ZSCORE', index, id) or '')
  return sequence and sequence - 1 or math.huge
end

local limit, holder = math.huge, ''
for _, group in ipairs(groups) do
  local gmeta, note = key('gmeta', group.name), key('note', group.name)
  if call('HLEN', gmeta) > 0 then
    group.frontier = tonumber(call('HGET', gmeta, 'frontier_p' .. p) or '0') or 0
    local bound = group.frontier
    local kind, target = string.match(call('HGET', note, 'rewind:' .. p) or '', '^(%a+) (%d+)$')
    if kind == 'delete' then
      bound = math.huge
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
  elseif group.foreign then
    group.bound = foreign_bound(group.name, group.foreign)
  else
    group.bound = math.huge
  end
  if group.bound < limit then limit, holder = group.bound, group.name end
end

-- The oldest entries that are to go, and may.
local rows = call('ZRANGE', index, 0, STEP - 1, 'WITHSCORES')
local over = length_max and call('XLEN', stream) - length_max or 0
local ids, sequences, held = {}, {}, false
for i = 1, #rows, 2 do
  local sequence = tonumber(rows[i + 1])
  local ms = tonumber(string.match(rows[i], '^(%d+)-') or '')
  local goes = over > 0 or (upto and sequence <= upto) or (oldest and ms and ms < oldest)
  if not goes then break end
  if sequence > limit and not force then
    held = true
    break
  end
  over = over - 1
  ids[#ids + 1] = rows[i]
  sequences[#sequences + 1] = sequence
end
local more = #ids == STEP and 1 or 0
if #ids == 0 then return { OK, 0, 0, held and holder or '', held and limit + 1 or 0 } end

-- What a group knows of these entries. What it has not settled counts as missing, unless it lives by
-- its copy.
for _, group in ipairs(groups) do
  if group.frontier then
    local fences = prefix .. 'fence:' .. name .. ':' .. group.name .. ':'
    local done, note = key('done', group.name) .. ':' .. p, key('note', group.name)
    local redriven = key('redriven', group.name) .. ':' .. p
    local leftovers, missing = {}, 0
    local records = call('ZCARD', redriven) > 0
    for i, id in ipairs(ids) do
      if not (records and call('ZSCORE', redriven, id)) then
        leftovers[#leftovers + 1] = id
        if sequences[i] > group.frontier and not call('ZSCORE', done, int(sequences[i])) then
          call('ZADD', done, int(sequences[i]), int(sequences[i]))
          redis.pcall('XACK', stream, group.name, id)
          call('ZREM', key('due', group.name) .. ':' .. p, id)
          call('ZREM', key('suspect', group.name) .. ':' .. p, id)
          missing = missing + 1
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
    if missing > 0 then
      call('HINCRBY', note, 'missing:' .. p, missing)
      if call('HEXISTS', note, 'rewind:' .. p) == 0 then
        call('HSET', key('gmeta', group.name), 'frontier_p' .. p, int(advance(done, group.frontier)))
      end
    end
  end
end
call('XDEL', stream, unpack(ids))
call('ZREM', index, unpack(ids))
call('HSET', KEYS[4], p, int(sequences[#sequences]))
return { OK, #ids, more, held and holder or '', held and limit + 1 or 0 }
