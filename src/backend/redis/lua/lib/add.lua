-- Shared: how one event is added to a partition's log.

-- The number that a counter's text tells; nil where it is none, or so large that a batch of events
-- would bring the low part of an entry id beyond what a double holds exactly.
local function count_of(text, partitions)
  local number = tonumber(text or '0')
  if not number or int(number) ~= (text or '0') then return nil end
  if number < 0 or number > 9007199254740991 / partitions - 10000 then return nil end
  return number
end

-- The first millisecond in which an id with this low part is above the last id; nil where there is
-- none that a double holds exactly. Asked for only when needed: the reply holds two whole entries.
local function ms_above(stream, low)
  local info = redis.call('XINFO', 'STREAM', stream)
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then
      local last_ms, last_low = string.match(info[i + 1], '^(%d+)-(%d+)$')
      local ms = tonumber(low) > tonumber(last_low) and tonumber(last_ms) or tonumber(last_ms) + 1
      return ms < 9007199254740992 and ms or nil
    end
  end
end

local argv, present = ARGV, nil

-- Adds one event. Written out for each shape: unpack costs more than all the rest.
-- i  where in ARGV it stands: id, timestamp ('' = now), shape ('' | k | t | kt), key, type, metadata,
--    payload
local function add(by, stream, entry, sequence, partition, i, now)
  local timestamp = argv[i + 1]
  if timestamp == '' then
    present = present or iso(now)
    timestamp = present
  end
  local shape = argv[i + 2]
  if shape == '' then
    return by('XADD', stream, entry, 'id', argv[i], 'sequence', sequence, 'partition', partition,
      'timestamp', timestamp, 'metadata', argv[i + 5], 'payload', argv[i + 6])
  elseif shape == 'k' then
    return by('XADD', stream, entry, 'id', argv[i], 'sequence', sequence, 'partition', partition,
      'timestamp', timestamp, 'key', argv[i + 3], 'metadata', argv[i + 5], 'payload', argv[i + 6])
  elseif shape == 't' then
    return by('XADD', stream, entry, 'id', argv[i], 'sequence', sequence, 'partition', partition,
      'timestamp', timestamp, 'type', argv[i + 4], 'metadata', argv[i + 5], 'payload', argv[i + 6])
  end
  return by('XADD', stream, entry, 'id', argv[i], 'sequence', sequence, 'partition', partition,
    'timestamp', timestamp, 'key', argv[i + 3], 'type', argv[i + 4], 'metadata', argv[i + 5], 'payload', argv[i + 6])
end
