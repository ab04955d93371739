-- Shared: the end of the run without gaps behind a frontier, by doubling and halving: a run can be
-- long. Members of `done` at or below the frontier are not looked at.
local function advance(done, f)
  local step = 1
  local function all_there(n)
    return redis.call('ZCOUNT', done, int(f + 1), int(f + n)) == n
  end
  while all_there(step) do
    f = f + step
    step = step * 2
  end
  while step > 1 do
    step = step / 2
    if all_there(step) then f = f + step end
  end
  return f
end
