-- Creates a stream: its metadata, nothing else. How far an earlier one of its name was trimmed says
-- nothing of it.
-- KEYS  meta, trimmed
-- ARGV  number of partitions
-- Reply OK | EXISTS
if redis.call('HEXISTS', KEYS[1], 'partition_count') == 1 then return EXISTS end
redis.call('HSET', KEYS[1], 'partition_count', ARGV[1], 'created_at', iso(now_ms()))
redis.call('DEL', KEYS[2])
return OK
