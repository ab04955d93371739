-- Writes the verdicts of one partition: each item's fence is checked and its verdict written in one
-- step.
-- KEYS  gmeta, s, z, done, due, suspect, dlq, note, redriven, copy
-- ARGV  group, partition, prefix of fences, a letter for each item, then the items in runs that have a
--       lease id in common: lease id, number of items, and for each of them: receipt, sequence
--       ('0' = unknown), and behind it for the letter
--         a ack       nothing
--         l release   attempt before this one
--         r retry     delay in ms, failure, reason
--         d dead      reason, then where known ('' = not): cause, failure, attempts, consumer, plugin
--       A capital letter: the index must be asked, see authorize. Best in the order of sequences.
-- Reply a letter for each item (see authorize), or '' where the group is gone
local WIDTH = { a = 2, A = 2, l = 3, L = 3, r = 5, R = 5, d = 8, D = 8 }
local PROVEN = { a = true, l = true, r = true, d = true }
local group, p, fences = ARGV[1], ARGV[2], ARGV[3]
local gmeta, stream, index, done, due, suspects, dlq = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local redriven, copies = KEYS[9], KEYS[10]

local frontier = redis.call('HGET', gmeta, 'frontier_p' .. p)
if not frontier and redis.call('HLEN', gmeta) == 0 then return '' end
frontier = tonumber(frontier or '0') or 0
local rewound = rewinding(KEYS[8], p)

-- Reads only: who may do what. The plain case is written out, since it comes for each event.
local call, argv = redis.call, ARGV
local held = { stream = stream, index = index, fences = fences, partition = p }
local answers, seen, settling, settled = {}, {}, 0, 0
local gone, keys, sequences, waiting, dead = {}, {}, {}, {}, {}
local i, lease, run, letters = 5, nil, 0, argv[4]
for item = 1, #letters do
  if run == 0 then
    lease, run, i = argv[i], tonumber(argv[i + 1]), i + 2
  end
  run = run - 1
  local letter, receipt, sequence = string.sub(letters, item, item), argv[i], argv[i + 1]
  local key, answer = fences .. receipt, 's'
  if not seen[receipt] and not (rewound and rewound(receipt, sequence, index)) then
    if PROVEN[letter] and call('HGET', key, 'lease_id') == lease then
      answer = 'd'
    else
      answer, sequence = authorize(held, letter, receipt, sequence, lease)
    end
  end
  if answer == 'd' then
    seen[receipt] = true
    local width = WIDTH[letter]
    if width == 3 or width == 5 then
      waiting[#waiting + 1] = { i, letter }
    else
      if sequence == '0' then sequence = indexed(index, receipt) end
      settling = settling + 1
      gone[settling] = receipt
      keys[settling] = key
      if sequence then
        settled = settled + 1
        sequences[settled] = sequence
      end
      if width == 8 then dead[#dead + 1] = { i, sequence } end
    end
  end
  answers[item] = answer
  i = i + WIDTH[letter]
end
-- Another type under our keys is refused here, before the first write.
local above = redis.call('ZCARD', done)
-- Both are empty nearly always: one question for the two.
local suspected, recorded = false, false
if redis.call('EXISTS', suspects, redriven) > 0 then
  suspected, recorded = redis.call('ZCARD', suspects) > 0, redis.call('ZCARD', redriven) > 0
  if recorded then redis.call('HLEN', copies) end
end
if #waiting > 0 then redis.call('ZCARD', due) end
if #dead > 0 then redis.call('XLEN', dlq) end

-- A full store refuses a script only at its first write, and never an XACK. This one acks nothing.
if #waiting > 0 or #dead > 0 then redis.call('XACK', stream, group, '0-0') end

-- Dead letters are written before anything is acked: should the store refuse one, nothing is lost.
local now = (#waiting > 0 or #dead > 0) and now_ms()
for _, item in ipairs(dead) do
  local at, sequence = item[1], item[2]
  local entry = redis.call('XRANGE', stream, ARGV[at], ARGV[at], 'COUNT', 1)[1]
  local fields = entry and entry[2]
  if not fields and recorded then fields = fields_of(redis.call('HGET', copies, ARGV[at]) or '') end
  if not fields or not fields[1] then fields = { 'sequence', sequence or '', 'partition', p } end
  -- unpack stops near 8,000: of an entry with more fields the first ones are kept.
  for n = #fields, 7001, -1 do fields[n] = nil end
  local function put(name, value)
    if value ~= '' then
      fields[#fields + 1] = name
      fields[#fields + 1] = value
    end
  end
  fields[#fields + 1] = 'reason'
  fields[#fields + 1] = ARGV[at + 2]
  put('dead_lettered_at', iso(now))
  put('cause', ARGV[at + 3])
  put('failure', ARGV[at + 4])
  put('attempts', ARGV[at + 5])
  put('consumer', ARGV[at + 6])
  put('plugin', ARGV[at + 7])
  put('receipt', p .. '/' .. ARGV[at])
  redis.call('XADD', dlq, '*', unpack(fields))
end
if settling > 0 then
  redis.call('XACK', stream, group, unpack(gone))
  redis.call('DEL', unpack(keys))
  if suspected then redis.call('ZREM', suspects, unpack(gone)) end
  if recorded and redis.call('ZREM', redriven, unpack(gone)) > 0 then redis.call('HDEL', copies, unpack(gone)) end
end
for _, item in ipairs(waiting) do
  local at, receipt = item[1], ARGV[item[1]]
  local key = fences .. receipt
  if string.lower(item[2]) == 'l' then
    -- As another writer lets go: anyone can take it at once, at the same attempt.
    redis.call('HSET', key, 'lease_id', '', 'attempt', ARGV[at + 2], 'expires_at_ms', '0', 'sequence', ARGV[at + 1])
    redis.call('ZADD', due, int(now), receipt)
  else
    -- The token of its own and the due time as expiry keep other writers' hands off until then.
    local time = int(now + tonumber(ARGV[at + 2]))
    redis.call('HSET', key, 'lease_id', 'parked', 'expires_at_ms', time, 'sequence', ARGV[at + 1],
      'failure', ARGV[at + 3], 'reason', ARGV[at + 4])
    redis.call('ZADD', due, time, receipt)
  end
  if suspected then redis.call('ZREM', suspects, receipt) end
end

finish({ gmeta = gmeta, done = done, partition = p, frontier = frontier, above = above, rewound = rewound }, sequences)
return table.concat(answers)
