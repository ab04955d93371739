-- Shared: an event's fields as one text, for each name and value its length, a colon, its bytes.
local function copy_of(fields)
  local parts = {}
  for i, text in ipairs(fields) do parts[i] = #text .. ':' .. text end
  return table.concat(parts)
end

-- The fields that such a text holds; nil where it is none.
local function fields_of(copy)
  local fields, at = {}, 1
  while at <= #copy do
    local _, colon, length = string.find(copy, '^(%d+):', at)
    if not colon then return nil end
    fields[#fields + 1] = string.sub(copy, colon + 1, colon + tonumber(length))
    at = colon + tonumber(length) + 1
  end
  return fields
end
