-- Prolongs leases. First XCLAIM, which a full store never refuses, and which tells the truth about
-- idle time; then the fences.
-- KEYS  gmeta, s, z, suspect, note
-- ARGV  group, partition, prefix of fences, lease in ms, then for each item: letter (r, or R where the
--       index must be asked), receipt, sequence, lease id
-- Reply a letter for each item (see authorize), or '' where the group is gone
local group, fences = ARGV[1], ARGV[3]
if redis.call('HLEN', KEYS[1]) == 0 then return '' end
local held = { stream = KEYS[2], index = KEYS[3], fences = fences, partition = ARGV[2] }
local rewound = rewinding(KEYS[5], ARGV[2])
local expires = int(now_ms() + tonumber(ARGV[4]))
local suspected = redis.call('ZCARD', KEYS[4]) > 0
local answers, good, holders = {}, {}, {}
for i = 5, #ARGV, 4 do
  local answer = 's'
  if not rewound or not rewound(ARGV[i + 1], ARGV[i + 2], KEYS[3]) then
    answer = authorize(held, ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3])
  end
  answers[#answers + 1] = answer
  if answer == 'd' then
    good[#good + 1] = i
    local holder = redis.call('HGET', fences .. ARGV[i + 1], 'consumer_id')
    if holder then
      holders[holder] = holders[holder] or {}
      table.insert(holders[holder], ARGV[i + 1])
    end
  end
end
for holder, receipts in pairs(holders) do
  receipts[#receipts + 1] = 'JUSTID'
  -- Without the group (it was lost a moment ago) the fence alone is prolonged.
  local claimed = redis.pcall('XCLAIM', KEYS[2], group, holder, 0, unpack(receipts))
  if claimed.err and not string.find(claimed.err, 'NOGROUP', 1, true) then return claimed end
end
for _, i in ipairs(good) do
  redis.call('HSET', fences .. ARGV[i + 1], 'expires_at_ms', expires, 'sequence', ARGV[i + 2])
  -- Its holder lives after all.
  if suspected then redis.call('ZREM', KEYS[4], ARGV[i + 1]) end
end
return table.concat(answers)
