-- Shared: writes down that sequences are settled. What follows the frontier directly moves it, the rest
-- is kept in `done`. During a replay it stands still, and the last step moves it.
-- at  gmeta, done (keys), partition, frontier, above (members of `done`), rewound
-- sequences  as texts, best in ascending order
-- Returns the frontier.
local function finish(at, sequences)
  local f, later, n, before = at.frontier, {}, 0, 0
  for _, text in ipairs(sequences) do
    local sequence = tonumber(text)
    if sequence < before then
      table.sort(sequences, function(a, b) return tonumber(a) < tonumber(b) end)
      return finish(at, sequences)
    end
    before = sequence
    if sequence == f + 1 and not at.rewound then
      f = sequence
    elseif sequence > f then
      later[n + 1] = text
      later[n + 2] = text
      n = n + 2
    end
  end
  if n > 0 then redis.call('ZADD', at.done, unpack(later)) end
  if at.rewound then return at.frontier end
  if at.above > 0 or n > 0 then f = advance(at.done, f) end
  if f > at.frontier then redis.call('HSET', at.gmeta, 'frontier_p' .. at.partition, int(f)) end
  if at.above > 0 and f > at.frontier or at.above > 10000 then
    -- Members at or below the frontier say nothing any more. A bounded number of them goes at a time.
    local last = redis.call('ZRANGE', at.done, 9999, 9999)[1]
    local limit = last and math.min(tonumber(last), f) or f
    redis.call('ZREMRANGEBYSCORE', at.done, '-inf', int(limit))
  end
  return f
end
