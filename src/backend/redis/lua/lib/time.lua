-- Shared: numbers and time. Time is the server's clock, in milliseconds since 1970.

-- Lua's own conversion turns large numbers into 1e+15; this is also faster.
local function int(number)
  return string.format('%d', number)
end

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
