-- Shared: where a group stands in one partition's stream: the id after which it reads on, or nil
-- where there is no such stream or no such group in it.
local function last_delivered(stream, group)
  local groups = redis.pcall('XINFO', 'GROUPS', stream)
  if groups.err then
    if string.find(groups.err, 'no such key', 1, true) then return nil end
    return nil, groups
  end
  for _, info in ipairs(groups) do
    local fields = {}
    for i = 1, #info, 2 do fields[info[i]] = info[i + 1] end
    if fields['name'] == group then return fields['last-delivered-id'] end
  end
  return nil
end
