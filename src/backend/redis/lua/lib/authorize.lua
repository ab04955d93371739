-- Shared: whether a lease entitles to settle or renew.
--
-- held    what is the same for all items: stream and index (the keys s and z), fences (prefix), partition
-- item    letter of the verdict: small where the entry id itself proves the sequence, which is so
--         for ids that we chose (low part = sequence * partitions + partition); capital where the
--         index must be asked
-- Returns the answer's letter: d may be done · s stale · m the receipt names another entry; and for d
-- the sequence that is settled by it: '0' where only the index knows, nil where it is none.
-- Expiry is not looked at: an expired lease that no one took still settles.
local function authorize(held, item, receipt, sequence, lease)
  if lease == '' or lease == 'parked' then return 's' end
  -- A lease id belongs to one claim of one partition: if it is still there, the lease holds.
  if redis.call('HGET', held.fences .. receipt, 'lease_id') == lease then
    if item == string.lower(item) or sequence == '0' then return 'd', sequence end
    if redis.call('HGET', held.fences .. receipt, 'partition') ~= held.partition then return 's' end
    local score = redis.call('ZSCORE', held.index, receipt)
    if score and tonumber(score) == tonumber(sequence) then return 'd', sequence end
    -- Another writer died before it wrote the index row: what the entry itself says counts.
    local row = redis.call('ZRANGEBYSCORE', held.index, sequence, sequence, 'LIMIT', 0, 1)
    if not score and not row[1] then return 'd', sequence end
    -- Or it wrote a wrong sequence into the entry: that of its row counts, and without a row none.
    local entry = redis.call('XRANGE', held.stream, receipt, receipt)[1]
    if entry and own_sequence(entry[2]) == tonumber(sequence) then return 'd', score and int(score) or nil end
    return 'm'
  end
  local row = redis.call('ZRANGEBYSCORE', held.index, sequence, sequence, 'LIMIT', 0, 1)
  if row[1] and row[1] ~= receipt and redis.call('HGET', held.fences .. row[1], 'lease_id') == lease then
    return 'm'
  end
  return 's'
end

-- nil where no rewind of the partition is under way; else what says whether a lease is stale for that
-- reason: all are, but those at or below the target of a replay.
local function rewinding(note, partition)
  local marker = redis.call('HGET', note, 'rewind:' .. partition)
  if not marker then return nil end
  local target = tonumber(string.match(marker, '^replay (%d+)$') or '')
  return function(receipt, sequence, index)
    sequence = tonumber(sequence)
    if sequence == 0 then sequence = tonumber(redis.call('ZSCORE', index, receipt) or '') end
    return not target or not sequence or sequence > target
  end
end

-- The sequence by the index, as text; nil where it has none.
local function indexed(index, receipt)
  local score = redis.call('ZSCORE', index, receipt)
  return score and int(score) or nil
end
