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

-- An event stands in ARGV as: shape, id, in a shape with a capital letter timestamp ('' = now) and
-- metadata (else it is now, and there is none), key and type as the shape says, payload. Each argument
-- costs as much as a tenth of the rest: so what is not there is not sent.
-- Shapes: n neither · k key · t type · b both
local WIDTH = { n = 3, k = 4, t = 4, b = 5, N = 5, K = 6, T = 6, B = 7 }
local SMALL = { N = 'n', K = 'k', T = 't', B = 'b' }

-- Adds the event that stands at i, and returns the answer and where the next one stands. Written out
-- for each shape: unpack costs more than all the rest.
local function add(by, stream, entry, sequence, partition, i, now)
  local shape, id, timestamp, metadata = argv[i], argv[i + 1], '', '{}'
  local small = SMALL[shape]
  if small then
    shape, timestamp, metadata = small, argv[i + 2], argv[i + 3]
    i = i + 2
  end
  if timestamp == '' then
    present = present or iso(now)
    timestamp = present
  end
  if shape == 'n' then
    return by('XADD', stream, entry, 'id', id, 'sequence', sequence, 'partition', partition,
      'timestamp', timestamp, 'metadata', metadata, 'payload', argv[i + 2]), i + 3
  elseif shape == 'k' then
    return by('XADD', stream, entry, 'id', id, 'sequence', sequence, 'partition', partition,
      'timestamp', timestamp, 'key', argv[i + 2], 'metadata', metadata, 'payload', argv[i + 3]), i + 4
  elseif shape == 't' then
    return by('XADD', stream, entry, 'id', id, 'sequence', sequence, 'partition', partition,
      'timestamp', timestamp, 'type', argv[i + 2], 'metadata', metadata, 'payload', argv[i + 3]), i + 4
  end
  return by('XADD', stream, entry, 'id', id, 'sequence', sequence, 'partition', partition,
    'timestamp', timestamp, 'key', argv[i + 2], 'type', argv[i + 3], 'metadata', metadata, 'payload', argv[i + 4]), i + 5
end
