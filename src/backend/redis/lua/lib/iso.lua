-- Shared: an instant in milliseconds as ISO 8601 with milliseconds and Z (no os.date in here). The
-- date is counted in eras of 400 years that begin on 1 March, so that a leap day comes last.
local function iso(ms)
  local seconds = math.floor(ms / 1000)
  local days = math.floor(seconds / 86400)
  local second = seconds - days * 86400
  local z = days + 719468
  local era = math.floor(z / 146097)
  local doe = z - era * 146097
  local yoe = math.floor((doe - math.floor(doe / 1460) + math.floor(doe / 36524) - math.floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
  local mp = math.floor((5 * doy + 2) / 153)
  local day = doy - math.floor((153 * mp + 2) / 5) + 1
  local month = mp < 10 and mp + 3 or mp - 9
  local year = yoe + era * 400 + (month <= 2 and 1 or 0)
  return string.format('%04d-%02d-%02dT%02d:%02d:%02d.%03dZ', year, month, day,
    math.floor(second / 3600), math.floor(second / 60) % 60, second % 60, ms % 1000)
end
