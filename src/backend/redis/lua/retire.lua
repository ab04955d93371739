-- Forgets a consumer that holds nothing, and others that hold nothing and have been silent for long.
-- Checked and done in one step: between the two, an entry could come to it and be lost with it.
-- KEYS  for each partition: s
-- ARGV  group, consumer, silence in ms
-- Reply number of names forgotten
local forgotten = 0
for _, stream in ipairs(KEYS) do
  local consumers = redis.pcall('XINFO', 'CONSUMERS', stream, ARGV[1])
  if not consumers.err then
    for _, info in ipairs(consumers) do
      local fields = {}
      for i = 1, #info, 2 do fields[info[i]] = info[i + 1] end
      if fields['pending'] == 0 and fields['name'] ~= WITNESS and (fields['name'] == ARGV[2] or fields['idle'] > tonumber(ARGV[3])) then
        redis.call('XGROUP', 'DELCONSUMER', stream, ARGV[1], fields['name'])
        forgotten = forgotten + 1
      end
    end
  end
end
return forgotten
