-- date, time, timestamp and interval as columns, parameters and results.
CREATE TABLE d (id integer PRIMARY KEY, day date, clock time, at timestamp, tz timestamptz, span interval, doc json, days date[], short timestamp(0), CHECK (day > '2000-01-01'));
INSERT INTO d VALUES (1, '2030-01-31', '10:20:30.5', '2030-01-31 10:20:30.123456', '2030-01-31 10:20:30+02', '1 year 2 months 3 days 04:05:06', '{"b": 1, "a": [1, 2]}', '{2030-01-01,NULL}', '2030-01-31 10:20:30.7');
INSERT INTO d VALUES (2, '2028-02-29', '00:00', '2028-02-29 00:00', '2028-02-29 23:59:59.999999+00', '-1 days 12:00:00', '[]', '{}', '2028-02-29 00:00:00.5'), (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
-- fails
INSERT INTO d (id, day) VALUES (4, '1999-01-01');
-- fails
INSERT INTO d (id, day) VALUES (4, '2030-02-30');
-- args: [5, date(2031, 5, 6), time(7, 8, 9, 10), datetime(2031, 5, 6, 7, 8), datetime(2031, 5, 6, 7, 8, tzinfo=UTC), timedelta(days=3, seconds=5), {"k": None}]
INSERT INTO d (id, day, clock, at, tz, span, doc) VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING *;
SELECT * FROM d ORDER BY id;
SELECT id, day, at FROM d WHERE day >= '2030-01-01' AND at < '2031-01-01' ORDER BY day;
SELECT id FROM d WHERE day < at OR day = tz ORDER BY id;
SELECT id FROM d WHERE day IN ('2030-01-31', '2028-02-29') ORDER BY at DESC NULLS LAST;
-- args: [[date(2030, 1, 31), date(2031, 5, 6)]]
SELECT id FROM d WHERE day = ANY($1) ORDER BY id;
SELECT day + 1, day - 1, 1 + day, day - '2030-01-01'::date, day + interval '1 month', day - interval '1 day', day + clock FROM d ORDER BY id;
SELECT at + interval '1 month', at - interval '36 hours', at - '2030-01-01', tz - at::timestamptz, tz::timestamp, at::date, at::time, tz::date, day::timestamp, day::timestamptz FROM d ORDER BY id;
SELECT clock + interval '15 hours', clock - interval '1 day 1 hour', clock - '01:00'::time, clock::interval, span::time FROM d ORDER BY id;
SELECT span + interval '1 month', span - interval '1 hour', -span, span * 2, 0.5 * span, span / 3, span < interval '1 day', span = interval '14 months 3 days 04:05:06' FROM d ORDER BY id;
SELECT day::text, clock::text, at::text, tz::text, span::text, doc::text FROM d ORDER BY id;
SELECT extract(year FROM day), extract(dow FROM day), extract(doy FROM day), extract(epoch FROM day), extract(week FROM day), extract(quarter FROM at), extract(hour FROM clock), extract(second FROM clock), extract(epoch FROM clock), extract(month FROM span), extract(epoch FROM span), extract(day FROM span) FROM d ORDER BY id;
SELECT date_part('year', day), date_part('hour', at), date_part('minute', clock), date_part('second', span) FROM d ORDER BY id;
-- fails
SELECT extract(hour FROM day) FROM d;
SELECT date_trunc('month', at), date_trunc('day', tz), date_trunc('month', day), date_trunc('hour', span) FROM d ORDER BY id;
SELECT age(at, '2028-03-15 12:00'), age('2028-03-15 12:00'::timestamp, at), age(tz, '2028-02-28'::timestamptz) FROM d ORDER BY id;
SELECT tz AT TIME ZONE 'Europe/Berlin', at AT TIME ZONE 'America/New_York', tz AT TIME ZONE 'UTC' FROM d ORDER BY id;
SELECT '2030-03-31 02:30'::timestamp AT TIME ZONE 'Europe/Berlin', '2030-10-27 02:30'::timestamp AT TIME ZONE 'Europe/Berlin';
SELECT make_date(2030, 2, 28), make_time(1, 2, 3.5), make_timestamp(2030, 1, 2, 3, 4, 5.678);
-- fails
SELECT make_date(2030, 2, 30);
SELECT justify_hours(interval '50 hours'), justify_days(interval '65 days'), justify_hours(interval '1 day -1 hour');
SELECT min(day), max(day), min(at), max(clock), min(span), max(span), count(DISTINCT day) FROM d;
SELECT day, count(*) FROM d GROUP BY day ORDER BY day;
SELECT DISTINCT span FROM d ORDER BY span;
SELECT span FROM d UNION SELECT interval '1 year 2 months 3 days 04:05:06' ORDER BY 1;
SELECT CASE WHEN id = 1 THEN day ELSE at END, coalesce(day, '2000-01-01'), greatest(day, '2029-01-01') FROM d ORDER BY id;
SELECT doc ->> 'a', doc::jsonb -> 'a' FROM d WHERE id = 1;
-- fails
SELECT id FROM d ORDER BY doc;
UPDATE d SET day = day + 1, at = '2032-01-01', span = '2 days' WHERE id = 5 RETURNING day, at, span;
UPDATE d SET days = array_append(days, '2032-02-03') WHERE id = 1 RETURNING days, days[1], cardinality(days);
SELECT day::varchar, '2030-01-01'::date::timestamptz, '12:34'::time(0), '2030-01-01 00:00:00.55'::timestamp(1), '2030-01-01 23:59:59.999999'::timestamp(0) FROM d WHERE id = 1;
CREATE TABLE byday (day date PRIMARY KEY, n integer);
INSERT INTO byday VALUES ('2030-01-01', 1), ('2030-01-02', 2) ON CONFLICT (day) DO UPDATE SET n = byday.n + excluded.n;
INSERT INTO byday VALUES ('2030-01-01', 5) ON CONFLICT (day) DO UPDATE SET n = byday.n + excluded.n RETURNING day, n;
CREATE TABLE spans (span interval PRIMARY KEY);
INSERT INTO spans VALUES ('1 day');
-- fails
INSERT INTO spans VALUES ('24 hours');
SELECT jsonb_build_object('day', day, 'at', at, 'clock', clock) FROM d ORDER BY id;
SELECT lag(day) OVER (ORDER BY id), first_value(at) OVER (ORDER BY id) FROM d ORDER BY id;
SELECT current_date = now()::date, localtimestamp = now()::timestamp, current_timestamp = now();
SELECT d.day + n FROM d, generate_series(1, 2) AS n WHERE d.id = 1 ORDER BY 1;
SELECT (ARRAY['2030-01-01'::date])[1], '{10:00,11:30}'::time[], ARRAY[interval '1 day'];
