-- Writes the verdicts of one partition: each item's fence is checked and its verdict written in one
-- step.
-- KEYS  gmeta, s, z, done, due, suspect, dlq, note, redriven, copy
-- ARGV  group, partition, prefix of fences, then for each item: letter, receipt, sequence
--       ('0' = unknown), lease id, and behind it for the letter
--         a ack       nothing
--         l release   attempt before this one
--         r retry     delay in ms, failure, reason
--         d dead      reason, then where known ('' = not): cause, failure, attempts, consumer, plugin
--       A capital letter: the index must be asked, see authorize
-- Reply a letter for each item (see authorize), or '' where the group is gone
local WIDTH = { a = 4, A = 4, l = 5, L = 5, r = 7, R = 7, d = 10, D = 10 }
local WAITS = { l = true, L = true, r = true, R = true }
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
local answers, seen, items = {}, {}, 0
local gone, keys, sequences, waiting, dead = {}, {}, {}, {}, {}
local i, last, settling = 4, #argv, 0
while i <= last do
  local item, receipt, sequence, lease = argv[i], argv[i + 1], argv[i + 2], argv[i + 3]
  local key, answer = fences .. receipt, 's'
  if not seen[receipt] and not (rewound and rewound(receipt, sequence, index)) then
    if PROVEN[item] and call('HGET', key, 'lease_id') == lease then
      answer = 'd'
    else
      answer, sequence = authorize(held, item, receipt, sequence, lease)
    end
  end
  if answer == 'd' then
    seen[receipt] = true
    if WAITS[item] then
      waiting[#waiting + 1] = i
    else
      if sequence == '0' then sequence = call('ZSCORE', index, receipt) end
      settling = settling + 1
      gone[settling] = receipt
      keys[settling] = key
      if sequence then sequences[#sequences + 1] = tonumber(sequence) end
      if WIDTH[item] == 10 then dead[#dead + 1] = { i, sequence } end
    end
  end
  items = items + 1
  answers[items] = answer
  i = i + WIDTH[item]
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
  local entry = redis.call('XRANGE', stream, ARGV[at + 1], ARGV[at + 1], 'COUNT', 1)[1]
  local fields = entry and entry[2]
  if not fields and recorded then fields = fields_of(redis.call('HGET', copies, ARGV[at + 1]) or '') end
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
  fields[#fields + 1] = ARGV[at + 4]
  put('dead_lettered_at', iso(now))
  put('cause', ARGV[at + 5])
  put('failure', ARGV[at + 6])
  put('attempts', ARGV[at + 7])
  put('consumer', ARGV[at + 8])
  put('plugin', ARGV[at + 9])
  put('receipt', p .. '/' .. ARGV[at + 1])
  redis.call('XADD', dlq, '*', unpack(fields))
end
if #gone > 0 then
  redis.call('XACK', stream, group, unpack(gone))
  redis.call('DEL', unpack(keys))
  if suspected then redis.call('ZREM', suspects, unpack(gone)) end
  if recorded and redis.call('ZREM', redriven, unpack(gone)) > 0 then redis.call('HDEL', copies, unpack(gone)) end
end
for _, at in ipairs(waiting) do
  local receipt, key = ARGV[at + 1], fences .. ARGV[at + 1]
  if string.lower(ARGV[at]) == 'l' then
    -- As another writer lets go: anyone can take it at once, at the same attempt.
    redis.call('HSET', key, 'lease_id', '', 'attempt', ARGV[at + 4], 'expires_at_ms', '0', 'sequence', ARGV[at + 2])
    redis.call('ZADD', due, int(now), receipt)
  else
    -- The token of its own and the due time as expiry keep other writers' hands off until then.
    local time = int(now + tonumber(ARGV[at + 4]))
    redis.call('HSET', key, 'lease_id', 'parked', 'expires_at_ms', time, 'sequence', ARGV[at + 2],
      'failure', ARGV[at + 5], 'reason', ARGV[at + 6])
    redis.call('ZADD', due, time, receipt)
  end
  if suspected then redis.call('ZREM', suspects, receipt) end
end

finish({ gmeta = gmeta, done = done, partition = p, frontier = frontier, above = above, rewound = rewound }, sequences)
return table.concat(answers)
