-- Shared: writes down that sequences are settled. What follows the frontier directly moves it, the rest
-- is kept in `done`. During a replay it stands still, and the last step moves it.
-- at  gmeta, done (keys), partition, frontier, above (members of `done`), rewound
-- Returns the frontier.
local function finish(at, sequences)
  table.sort(sequences)
  local f, later = at.frontier, {}
  for _, sequence in ipairs(sequences) do
    if sequence == f + 1 and not at.rewound then
      f = sequence
    elseif sequence > f then
      local text, n = int(sequence), #later
      later[n + 1] = text
      later[n + 2] = text
    end
  end
  if #later > 0 then redis.call('ZADD', at.done, unpack(later)) end
  if at.rewound then return at.frontier end
  if at.above > 0 or #later > 0 then f = advance(at.done, f) end
  if f > at.frontier then redis.call('HSET', at.gmeta, 'frontier_p' .. at.partition, int(f)) end
  if at.above > 0 and f > at.frontier or at.above > 10000 then
    -- Members at or below the frontier say nothing any more. A bounded number of them goes at a time.
    local last = redis.call('ZRANGE', at.done, 9999, 9999)[1]
    local limit = last and math.min(tonumber(last), f) or f
    redis.call('ZREMRANGEBYSCORE', at.done, '-inf', int(limit))
  end
  return f
end
