-- Shared: entry ids.

-- Whether the entry id a is below b.
local function lower(a, b)
  local a_ms, a_low = string.match(a, '^(%d+)-(%d+)$')
  local b_ms, b_low = string.match(b, '^(%d+)-(%d+)$')
  a_ms, b_ms = tonumber(a_ms or 0), tonumber(b_ms or 0)
  return a_ms < b_ms or (a_ms == b_ms and tonumber(a_low or 0) < tonumber(b_low or 0))
end

-- Whether it is one at all: what another writer put into an index need not be.
local function is_id(text)
  return string.match(text, '^%d+-%d+$') ~= nil
end
