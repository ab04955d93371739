-- Acks with effects, of one partition: each item is one step, in which the ack, the events that it
-- appends and the state that it writes appear together or not at all.
-- KEYS  gmeta, s, z, done, suspect, note, redriven, copy, versions
-- ARGV  group, partition, prefix of fences, what all keys begin with ('rheo:{handle}:'), then for each
--       item: letter (a, or A where the index must be asked), receipt, sequence, lease id, numbers of
--       reads, writes and events, then each read: bucket, key, version; each write: bucket, key, s (set)
--       or d (delete), value; each event: stream, number of partitions, partition, and what `add` takes
-- Reply a letter for each item (see authorize, and: c a read was overtaken, x a stream does not exist,
--       r a stream has other partitions, w a key has another type, e it failed half-way), or '' where
--       the group is gone
local call, argv = redis.call, ARGV
local group, p, fences, prefix = argv[1], argv[2], argv[3], argv[4]
local gmeta, stream, index, done, suspects = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local redriven, copies, versions = KEYS[7], KEYS[8], KEYS[9]
local frontier = call('HGET', gmeta, 'frontier_p' .. p)
if not frontier and call('HLEN', gmeta) == 0 then return '' end
local rewound = rewinding(KEYS[6], p)
local at = { gmeta = gmeta, done = done, partition = p, frontier = tonumber(frontier or '0') or 0,
  above = call('ZCARD', done), rewound = rewound }
-- Another type under our keys is refused here, before the first write.
call('XLEN', stream)
call('ZCARD', index)
-- Both are empty nearly always: one question for the two.
local suspected, recorded = false, false
if call('EXISTS', suspects, redriven) > 0 then
  suspected, recorded = call('ZCARD', suspects) > 0, call('ZCARD', redriven) > 0
  if recorded then call('HLEN', copies) end
end
local held = { stream = stream, index = index, fences = fences, partition = p }
local now = now_ms()

-- A key's type; asked once for each key and script, since what we write we know.
local types = {}
local function is(key, expected)
  local found = types[key]
  if not found then
    found = call('TYPE', key)
    found = found.ok or found
    types[key] = found
  end
  return found == expected or found == 'none'
end

local function version_of(bucket, key)
  local value = call('HGET', prefix .. 'state:' .. bucket, key)
  return value and string.match(value, '^(%d+):') or '0'
end

-- Where the events of a partition go: its keys, its last sequence.
local targets = {}
local function target_of(name, partition)
  local place = name .. ':' .. partition
  local target = targets[place]
  if not target then
    target = { seq = prefix .. 'seq:' .. place, index = prefix .. 'z:' .. place, stream = prefix .. 's:' .. place }
    targets[place] = target
  end
  return target
end

-- The first millisecond that a target's next entry can have; nil where there is none.
local function ms_of(target, low)
  if types[target.stream] == 'none' then return now end
  local above = ms_above(target.stream, low)
  return above and math.max(above, now)
end

local function low_of(target, partitions, partition)
  return int((target.last + 1) * tonumber(partitions) + tonumber(partition))
end

-- Everything that can fail, before the item's first write; nil where it may go.
local function refusal(i, reads, writes, events)
  for _ = 1, reads do
    if not is(prefix .. 'state:' .. argv[i], 'hash') then return 'w' end
    if version_of(argv[i], argv[i + 1]) ~= argv[i + 2] then return 'c' end
    i = i + 3
  end
  if writes > 0 then
    if not is(versions, 'string') or not count_of(call('GET', versions), 1) then return 'w' end
  end
  for _ = 1, writes do
    if not is(prefix .. 'state:' .. argv[i], 'hash') then return 'w' end
    i = i + 4
  end
  local first
  for _ = 1, events do
    local meta = prefix .. 'meta:' .. argv[i]
    if not is(meta, 'hash') then return 'w' end
    local count = call('HGET', meta, 'partition_count')
    if not count then return 'x' end
    if count ~= argv[i + 1] then return 'r' end
    local target = target_of(argv[i], argv[i + 2])
    if not (is(target.seq, 'string') and is(target.index, 'zset') and is(target.stream, 'stream')) then return 'w' end
    if not target.last then
      target.last = count_of(call('GET', target.seq), tonumber(count))
      if not target.last then return 'w' end
    end
    -- Should the item's first entry be refused, nothing is written yet: only where others go is asked.
    first = first or target
    if target ~= first and not target.ms then
      target.ms = ms_of(target, low_of(target, count, argv[i + 2]))
      if not target.ms then return 'w' end
    end
    i = i + 3 + WIDTH[argv[i + 3]]
  end
  return nil
end

-- Appends one event; a letter or an error where that is refused, which can be at an item's first one
-- only. Its command is one that a full store refuses.
local function append(i)
  local name, partition = argv[i], argv[i + 2]
  local target = target_of(name, partition)
  local sequence = target.last + 1
  local low = low_of(target, argv[i + 1], partition)
  local entry = int(target.ms or now) .. '-' .. low
  local added = add(redis.pcall, target.stream, entry, int(sequence), partition, i + 3, now)
  if added.err and not target.ms and string.find(added.err, 'equal or smaller', 1, true) then
    target.ms = ms_of(target, low)
    if not target.ms then return 'w' end
    entry = int(target.ms) .. '-' .. low
    added = add(redis.pcall, target.stream, entry, int(sequence), partition, i + 3, now)
  end
  if added.err then return added end
  call('ZADD', target.index, int(sequence), entry)
  call('SET', target.seq, int(sequence))
  target.last, target.ms = sequence, target.ms or now
  types[target.seq], types[target.index], types[target.stream] = 'string', 'zset', 'stream'
  return nil
end

local function write(i, version)
  local bucket = prefix .. 'state:' .. argv[i]
  if argv[i + 2] == 's' then
    call('HSET', bucket, argv[i + 1], version .. ':' .. argv[i + 3])
    types[bucket] = 'hash'
  else
    call('HDEL', bucket, argv[i + 1])
  end
end

local function commit(i, receipt, sequence, reads, writes, events)
  local first_write = i + 3 * reads
  local event = first_write + 4 * writes
  for _ = 1, events do
    local failed = append(event)
    if failed then return failed end
    event = event + 3 + WIDTH[argv[event + 3]]
  end
  if writes > 0 then
    local version = int(call('INCR', versions))
    types[versions] = 'string'
    for n = 0, writes - 1 do write(first_write + 4 * n, version) end
  end
  call('XACK', stream, group, receipt)
  call('DEL', fences .. receipt)
  if suspected then call('ZREM', suspects, receipt) end
  if recorded and call('ZREM', redriven, receipt) > 0 then call('HDEL', copies, receipt) end
  if sequence == '0' then sequence = indexed(index, receipt) end
  if sequence then
    at.frontier = finish(at, { sequence })
    at.above = call('ZCARD', done)
  end
  return nil
end

local answers, wrote, i = {}, false, 5
while i <= #argv do
  local item, receipt, sequence, lease = argv[i], argv[i + 1], argv[i + 2], argv[i + 3]
  local reads, writes, events = tonumber(argv[i + 4]), tonumber(argv[i + 5]), tonumber(argv[i + 6])
  local answer = 's'
  if not (rewound and rewound(receipt, sequence, index)) then
    answer, sequence = authorize(held, item, receipt, sequence, lease)
  end
  if answer == 'd' then answer = refusal(i + 7, reads, writes, events) or 'd' end
  if answer == 'd' then
    local failed = commit(i + 7, receipt, sequence, reads, writes, events)
    if failed == 'w' then
      answer = 'w'
    elseif failed then
      if not wrote then return failed end
      answer = 'e'
    end
    wrote = wrote or answer == 'd'
  end
  answers[#answers + 1] = answer
  i = i + 7 + 3 * reads + 4 * writes
  for _ = 1, events do i = i + 3 + WIDTH[argv[i + 3]] end
end
return table.concat(answers)
