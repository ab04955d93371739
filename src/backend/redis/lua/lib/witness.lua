-- Shared: evidence that a group is still the one of which the note tells what it has read.

-- A consumer that never reads. It goes with the group: one of the same name that other hands made after
-- an XGROUP DESTROY, wherever it stands, has none.
local WITNESS = 'witness'
-- Under these names entries are put into the pending list: they have not read anything either.
local NO_READERS = { [WITNESS] = true, heal = true, redrive = true }

-- Whether the witness is there, and whether anyone has read.
local function consumers_of(stream, group)
  local witnessed, readers = false, false
  local consumers = redis.pcall('XINFO', 'CONSUMERS', stream, group)
  if consumers.err then return false, false end
  for _, info in ipairs(consumers) do
    for i = 1, #info, 2 do
      if info[i] == 'name' then
        witnessed = witnessed or info[i + 1] == WITNESS
        readers = readers or not NO_READERS[info[i + 1]]
      end
    end
  end
  return witnessed, readers
end

-- What the note tells of a partition: since when it is known what the group reads ('since:'), whether
-- it had readers before that ('heirs:'), and where it stood at the last claim (the field of the
-- partition's number). Returns the first two as they are to be noted, and whether that is new: no one
-- has looked yet, another group took the place of the one that is known (what it has read, no one
-- knows), or another writer moved the group back (what it has read since may be less than it had).
local function evidence(stream, group, stands, since, heirs, claimed)
  local at = string.match(claimed or '', ' (%S+)$')
  local moved_back = at and at ~= stands and lower(stands, at)
  local witnessed, readers = consumers_of(stream, group)
  if since and witnessed and not moved_back then return since, heirs == '1', false end
  return stands, readers and (witnessed or not since), true
end

-- The fields of the note that say so. Together with the witness.
local function vouch(stream, group, p, since, heirs)
  redis.call('XGROUP', 'CREATECONSUMER', stream, group, WITNESS)
  return 'since:' .. p, since, 'heirs:' .. p, heirs and '1' or '0'
end
