"""The Lua scripts that run inside Redis: each is one atomic step, and touches the keys of one slot only.

The time is Redis's own in all of them (TIME), never that of a client (C11). Numbers of microseconds are written out,
because Lua would write them with an exponent.

A token of a lease has two parts, an epoch and a count. The count grows with every lease that is granted here, of any
name, so that no name needs a key that lives for ever. The epoch comes from the store and is higher than all before. A
Redis that was restarted or emptied, or a replica that took over, may have lost counts: `ACQUIRE` recognises it by the
run that the epoch was given to, and grants nothing before it has a new epoch.
"""

TIME = """
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local function whole(number) return string.format('%.0f', number) end
"""

RUN = """
-- A user of Redis may be forbidden to ask. Then a restart from an old copy is not noticed, as the guide says.
local info = redis.pcall('INFO', 'server')
local run = type(info) == 'string' and string.match(info, 'run_id:(%x+)') or ''
"""

KEPT_US = 3_600_000_000
"""How long the record of a lease outlives the lease: a late caller still learns its last holder."""

HOME_US = 10_000_000
"""A home without a sign of life for this long is not counted any more."""

COUNT_MAX = 2**32 - 1

KEPT_MS_MAX = 10**12
"""The longest time to live, 31 years: Redis refuses a number that it cannot add to its time."""

GIVE = f"""
local function give(key, held, name, owner, epoch, count, since, until_us)
    redis.call('HSET', key, 'owner', owner, 'epoch', epoch, 'count', count, 'since', since, 'until', whole(until_us))
    local kept_ms = math.ceil((until_us - now + {KEPT_US}) / 1000)
    redis.call('PEXPIRE', key, whole(math.max(1, math.min({KEPT_MS_MAX}, kept_ms))))
    redis.call('ZADD', held, whole(until_us), name)
end
"""

ACQUIRE = f"""{TIME}{RUN}{GIVE}
-- KEYS: the lease, the fence, who holds what, what may be held. ARGV: name, owner, how long, the highest epoch that the
-- caller has seen: a Redis with a lower one was emptied, and got its epoch from a process that knew of none.
local name, owner, until_us = ARGV[1], ARGV[2], now + ARGV[3]
local fence = redis.call('HMGET', KEYS[2], 'epoch', 'run', 'count', 'quiet')
if not fence[1] or (run ~= '' and fence[2] ~= run) or tonumber(fence[3]) >= {COUNT_MAX}
    or tonumber(fence[1]) < tonumber(ARGV[4]) then
    return {{'epoch', whole(now)}}
end
local found = redis.call('HMGET', KEYS[1], 'owner', 'epoch', 'count', 'since', 'until')
-- Since an epoch that is over now the store may have given the lease to others: then who asks again has a new token.
if found[1] == owner and found[2] == fence[1] then
    give(KEYS[1], KEYS[3], name, owner, found[2], found[3], found[4], until_us)
    return {{'granted', found[2], found[3]}}
end
if found[1] and found[1] ~= owner and tonumber(found[5]) > now then
    return {{'held', found[1], found[4], whole(now)}}
end
local unsure = redis.call('ZSCORE', KEYS[4], name)
if tonumber(fence[4]) > now or (unsure and tonumber(unsure) > now) then
    return {{'quiet', whole(now)}}
end
local count = redis.call('HINCRBY', KEYS[2], 'count', 1)
give(KEYS[1], KEYS[3], name, owner, fence[1], count, whole(now), until_us)
return {{'granted', fence[1], whole(count)}}
"""

RENEW = f"""{TIME}{GIVE}
-- KEYS: the lease, who holds what. ARGV: name, epoch, count, how long.
local found = redis.call('HMGET', KEYS[1], 'owner', 'epoch', 'count', 'since')
if not found[1] or found[2] ~= ARGV[2] or found[3] ~= ARGV[3] then return 0 end
give(KEYS[1], KEYS[2], ARGV[1], found[1], found[2], found[3], found[4], now + ARGV[4])
return 1
"""

RELEASE = """
-- KEYS: the lease, who holds what, what may be held. ARGV: name, epoch, count.
local found = redis.call('HMGET', KEYS[1], 'epoch', 'count')
if found[1] ~= ARGV[2] or found[2] ~= ARGV[3] then return 0 end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
return 1
"""

ADOPT = f"""{TIME}{GIVE}
-- A lease that the store gave while Redis was gone. KEYS: the lease, who holds what.
-- ARGV: name, owner, epoch, count, for how long it is held already, how long.
local found = redis.call('HMGET', KEYS[1], 'epoch', 'count', 'until', 'owner')
local same = found[4] == ARGV[2] or (found[1] == ARGV[3] and found[2] == ARGV[4])
if found[1] and not same and tonumber(found[3]) > now then return 0 end
give(KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3], ARGV[4], whole(now - ARGV[5]), now + ARGV[6])
return 1
"""

RAISE = f"""{TIME}{RUN}
-- KEYS: the fence, what may be held. ARGV: an epoch, how long to give nothing after a loss of data, how long after a
-- return, and then names that were held before the loss, each with how long that may still be.
local epoch = tonumber(ARGV[1])
local found = redis.call('HMGET', KEYS[1], 'epoch', 'run', 'quiet')
local known = tonumber(found[1] or '0')
if epoch <= known then return known end
local quiet = 0
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', whole(now))
if not found[1] or (run ~= '' and found[2] ~= run) then
    quiet = tonumber(ARGV[2])
    for at = 4, #ARGV, 2 do redis.call('ZADD', KEYS[2], whole(now + ARGV[at + 1]), ARGV[at]) end
elseif epoch > known + 1 then
    quiet = tonumber(ARGV[3])
end
local until_us = math.max(tonumber(found[3] or '0'), now + quiet)
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'run', run, 'count', '0', 'quiet', whole(until_us))
return epoch
"""

BEAT = f"""{TIME}
-- KEYS: who holds what, the homes, the fence. ARGV: how many names at most, the home of who asks. How many homes there
-- are, the epoch, and the names with the most time left, each with that time.
redis.call('ZADD', KEYS[2], whole(now), ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', whole(now - {HOME_US}))
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', whole(now))
local answer = {{whole(redis.call('ZCARD', KEYS[2])), redis.call('HGET', KEYS[3], 'epoch') or '0'}}
local found = redis.call('ZREVRANGE', KEYS[1], 0, ARGV[1] - 1, 'WITHSCORES')
for at = 1, #found, 2 do
    answer[at + 2], answer[at + 3] = found[at], whole(found[at + 1] - now)
end
return answer
"""

TAKE = f"""{TIME}
-- KEYS: a bucket. ARGV: rate per second, burst, how many are wanted, how many come back; fewer than 0 were borrowed.
local rate, burst, want, back = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local found = redis.call('HMGET', KEYS[1], 'level', 'at')
local level = burst
if found[1] then
    level = math.min(burst, found[1] + math.max(0, now - found[2]) * rate / 1000000)
end
level = math.min(burst, level + back)
local given = math.max(0, math.floor(math.min(level, want)))
level = level - given
redis.call('HSET', KEYS[1], 'level', string.format('%.6f', level), 'at', whole(now))
redis.call('PEXPIRE', KEYS[1], whole(math.min({KEPT_MS_MAX}, math.ceil((burst - level) / rate * 1000) + 60000)))
return {{given, string.format('%.6f', level)}}
"""

LOOK = f"""{TIME}
-- KEYS: a breaker. Everything about it, with the time until probes are admitted.
local found = redis.call('HMGET', KEYS[1], 'generation', 'state', 'until', 'forced', 'reason', 'by', 'life')
if not found[1] then return {{'0', 'closed', '0', '', '', '', ''}} end
return {{found[1], found[2], whole(math.max(0, found[3] - now)), found[4], found[5], found[6], found[7]}}
"""

SAY = f"""{TIME}
-- KEYS: a breaker, its probes. ARGV: what (open, closed, force), the generation that is known, how long it stays open,
-- how it is forced, why, by whom, the life that is known, a new one. Of two reports about one generation the first
-- counts. A life begins when Redis knows nothing of the breaker: generations of two lives cannot be compared.
local what, seen, reset, forced, why, by = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local found = redis.call('HMGET', KEYS[1], 'generation', 'state', 'until', 'forced', 'life')
local known, life = tonumber(found[1] or '0'), found[5] or ARGV[8]
local state, until_us, held = found[2] or 'closed', found[3] or '0', found[4] or ''
if what ~= 'force' and found[1] and (life ~= ARGV[7] or known > seen) then return 0 end
if what == 'open' then
    state, until_us = 'open', whole(now + reset)
elseif what == 'closed' then
    state, until_us = 'closed', '0'
else
    if forced == '' and held ~= '' then state, until_us = 'closed', '0' end
    held = forced
end
local generation = whole(known + 1)
redis.call('HSET', KEYS[1], 'generation', generation, 'state', state, 'until', until_us, 'forced', held,
    'reason', why, 'by', by, 'life', life)
redis.call('DEL', KEYS[2])
return 1
"""

PROBE = f"""{TIME}
-- KEYS: a breaker, its probes. ARGV: the generation that is known, probes_max, the permit, how long a probe may take.
local found = redis.call('HMGET', KEYS[1], 'generation', 'state', 'until')
if found[1] ~= ARGV[1] or found[2] ~= 'open' or tonumber(found[3]) > now then return 0 end
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', whole(now))
if redis.call('ZCARD', KEYS[2]) >= tonumber(ARGV[2]) then return 0 end
redis.call('ZADD', KEYS[2], whole(now + ARGV[4]), ARGV[3])
redis.call('PEXPIRE', KEYS[2], whole(math.ceil(ARGV[4] / 1000) + 1000))
return 1
"""

ABANDON = """
-- A probe has reported nothing. KEYS: the probes of a breaker. ARGV: who has asked.
return redis.call('ZREM', KEYS[1], ARGV[1])
"""
