-- Moments and intervals: literals, arithmetic, parts. The time zone of every session is UTC.
CREATE TABLE m (id integer PRIMARY KEY, at timestamptz, upto timestamptz DEFAULT (now() + interval '1 hour'), n integer, d double precision, p numeric);
INSERT INTO m (id, at, n, d, p) VALUES (1, '2030-01-31 10:20:30.456789+00', 3, 1.5, 2.25), (2, '2028-02-29', -1, -0.1, -1), (3, '1999-12-31T23:59:59Z', 0, 0, 0), (4, NULL, NULL, NULL, NULL), (5, '0001-01-01 00:00', 100, 1e6, 1e3), (6, '9999-12-31 23:59:59.999999', 1, 0.333333, 0.1);
SELECT id, at FROM m ORDER BY id;
SELECT id, upto > now() + interval '30 minutes' AS later, upto <= now() + interval '60 minutes' AS bounded FROM m ORDER BY id;
-- Literals.
SELECT id FROM m WHERE at > '2029-01-01' ORDER BY id;
SELECT id FROM m WHERE at >= '2030-01-31 10:20:30.456789' AND at < '2030-02-01T00:00:00Z' ORDER BY id;
SELECT id FROM m WHERE at BETWEEN '1999-12-31' AND '2000-01-01 00:00' ORDER BY id;
SELECT '2030-01-02'::timestamptz, '2030-01-02 03:04'::timestamptz, '2030-01-02T03:04:05'::timestamptz, '2030-01-02 03:04:05.5+02'::timestamptz;
SELECT '2030-02-30'::timestamptz;
SELECT '2030-13-01'::timestamptz;
SELECT '2030-01-01 25:00'::timestamptz;
SELECT '2030-01-02'::text::timestamptz, at::text FROM m ORDER BY id;
INSERT INTO m (id, at) VALUES (7, '2031-05-06 07:08:09') RETURNING at;
-- refused
SELECT 'infinity'::timestamptz;
SELECT '2030-1-2'::timestamptz;
-- refused
SELECT 'yesterday'::timestamptz;
-- Arithmetic.
SELECT id, at + interval '1 day', at - interval '1 month', at + interval '1 year' FROM m WHERE id < 5 ORDER BY id;
SELECT id, at + interval '1 month', at + interval '13 months', at - interval '1 year 2 months 3 days 04:05:06.789' FROM m WHERE id < 5 ORDER BY id;
SELECT id, at - interval '5 minutes', at + interval '90 seconds', at + interval '1.5 seconds', interval '2 weeks' + at FROM m WHERE id < 5 ORDER BY id;
SELECT at + n * interval '1 second', at + interval '1 day' * n, at + d * interval '1 day', at + p * interval '1 hour' FROM m WHERE id IN (1, 2, 3, 4) ORDER BY id;
SELECT at + interval '1 month' * d, at + interval '1 month' / 7, at + interval '1 year 1 month 1 day 1 second' * d, at - interval '10 days' / 3 FROM m WHERE id IN (1, 2, 3, 4) ORDER BY id;
SELECT at + interval '1 day' / 0 FROM m;
SELECT at + (interval '1 day' + interval '1 hour'), at + (interval '1 day' - interval '25 hours'), at + (- interval '1 day') FROM m WHERE id < 4 ORDER BY id;
SELECT at + '1 day', '2 days' + at FROM m WHERE id = 1;
SELECT at + '1 day'::interval FROM m WHERE id = 1;
SELECT at + CAST('1 day' AS interval) FROM m WHERE id = 1;
SELECT at + 1 FROM m;
SELECT at * 2 FROM m;
SELECT at + at FROM m;
SELECT at - 'nonsense' FROM m;
SELECT interval '1 day' * interval '1 day' = interval '1 day';
SELECT id FROM m WHERE now() - at > interval '5 minutes' AND id <> 2 ORDER BY id;
SELECT id FROM m WHERE at < now() - interval '5 minutes' AND id <> 2 ORDER BY id;
SELECT id FROM m WHERE at > now() + interval '1 hour' AND at < current_timestamp + interval '1000 years' AND id <> 2 ORDER BY id;
SELECT interval '1 month' = interval '30 days', interval '1 day' = interval '24 hours', interval '1 year' > interval '360 days', interval '-1 day' < interval '0 seconds', interval '1 day' <> interval '1 day', interval '1 day' IS DISTINCT FROM NULL;
-- args: [90]
SELECT at + $1 * interval '1 second' FROM m WHERE id < 5 ORDER BY id;
-- args: [0.25]
SELECT at - $1 * interval '1 day' FROM m WHERE id < 5 ORDER BY id;
-- args: [timedelta(days=1, seconds=5, microseconds=7)]
SELECT at + $1 FROM m WHERE id < 5 ORDER BY id;
-- args: [timedelta(hours=-1)]
SELECT at + $1::interval, at - $1::interval FROM m WHERE id < 5 ORDER BY id;
-- args: [datetime(2030, 1, 1, tzinfo=UTC)]
SELECT extract(epoch FROM at - $1) FROM m ORDER BY id;
-- args: [5]
SELECT at + $1::interval FROM m;
-- refused
SELECT at - interval '1 year' FROM m WHERE id = 5;
-- refused
SELECT at + interval '1 microsecond' FROM m WHERE id = 6;
-- refused
SELECT at + interval '1 month' FROM m WHERE id = 6;
SELECT interval '1 day';
-- refused
SELECT at + interval '1.5 days' FROM m;
-- refused
SELECT at + interval 'P1D' FROM m;
-- refused
SELECT at + interval '1-2' FROM m;
CREATE TABLE q (a interval);
SELECT id FROM m ORDER BY now() - at;
-- Parts.
SELECT extract(epoch FROM at), extract(second FROM at), extract(minute FROM at), extract(hour FROM at), extract(day FROM at), extract(month FROM at), extract(year FROM at) FROM m ORDER BY id;
SELECT extract(dow FROM at), extract(isodow FROM at), extract(doy FROM at), extract(week FROM at), extract(isoyear FROM at), extract(quarter FROM at), extract(milliseconds FROM at), extract(microseconds FROM at) FROM m ORDER BY id;
SELECT extract(epoch FROM (at - '2030-01-01 00:00:00+00')), extract(day FROM at - '2000-01-01'), extract(hour FROM at - '2000-01-01'), extract(minute FROM at - '2000-01-01'), extract(second FROM at - '2000-01-01') FROM m ORDER BY id;
SELECT extract(epoch FROM interval '1 year 1 month 1 day 1.5 seconds'), extract(year FROM interval '25 months'), extract(month FROM interval '-25 months'), extract(epoch FROM interval '-13 months'), extract(hour FROM interval '50 hours');
SELECT extract(epoch FROM now()) > 0, extract(epoch FROM upto - now()) > 1800 FROM m WHERE id = 1;
SELECT extract(epoch FROM at)::bigint, extract(epoch FROM at)::double precision, extract(epoch FROM at) * 1000 FROM m ORDER BY id;
SELECT extract(nonsense FROM at) FROM m;
SELECT extract(century FROM at) FROM m;
SELECT date_trunc('microseconds', at), date_trunc('milliseconds', at), date_trunc('second', at), date_trunc('minute', at), date_trunc('hour', at), date_trunc('day', at) FROM m ORDER BY id;
SELECT date_trunc('week', at), date_trunc('month', at), date_trunc('quarter', at), date_trunc('year', at), date_trunc('DAY', at) FROM m ORDER BY id;
SELECT date_trunc('day', at) AS day, count(*) FROM m GROUP BY date_trunc('day', at) ORDER BY day;
-- args: ["hour"]
SELECT date_trunc($1, at) FROM m ORDER BY id;
SELECT date_trunc('nonsense', at) FROM m;
SELECT date_trunc('century', at) FROM m;
SELECT to_timestamp(0), to_timestamp(1893456000.5), to_timestamp(-1.25), to_timestamp(1e9), to_timestamp('5');
SELECT to_timestamp(extract(epoch FROM at)) = at FROM m WHERE id IN (1, 2, 3) ORDER BY id;
-- args: [1893456000.123456]
SELECT to_timestamp($1);
SELECT to_timestamp('2030', 'YYYY');
SELECT current_timestamp = now(), now(), current_timestamp FROM m WHERE false;
SELECT id FROM m WHERE at = (SELECT max(at) FROM m);
SELECT greatest(at, '2010-01-01'), least(at, '2010-01-01 00:00:00+00') FROM m ORDER BY id;
SELECT coalesce(at, now()) > '1970-01-01' FROM m ORDER BY id;
UPDATE m SET at = at + interval '1 day', upto = date_trunc('day', at) WHERE id < 4 RETURNING id, at, upto;
CREATE TABLE lease (id integer PRIMARY KEY, since timestamptz NOT NULL, upto timestamptz, CHECK (upto > since + interval '1 minute'));
INSERT INTO lease VALUES (1, '2030-01-01', '2030-01-01 00:02');
INSERT INTO lease VALUES (2, '2030-01-01', '2030-01-01 00:01');
-- PostgreSQL counts from the year 2000, and rounds half away from it.
CREATE TABLE rounded (id integer PRIMARY KEY, at timestamp(0), zoned timestamptz(2));
INSERT INTO rounded VALUES (1, '1999-12-31 23:59:59.5', '1985-01-01 00:00:00.005'), (2, '2024-01-01 00:00:00.5', '2024-01-01 00:00:00.005'), (3, '1960-01-01 00:00:00.5', '1999-12-31 23:59:59.995') RETURNING *;
SELECT id, at::timestamptz(0), '1999-01-01 00:00:00.25'::timestamp(1), '2001-01-01 00:00:00.25'::timestamp(1) FROM rounded ORDER BY id;
-- Seven names are abbreviations with one offset; a sign follows POSIX, where + is west.
SELECT '2024-07-01 12:00'::timestamptz AT TIME ZONE z, '2024-07-01 12:00'::timestamp AT TIME ZONE z
  FROM (VALUES ('CET'), ('eet'), ('MET'), ('WET'), ('EST'), ('utc'), ('europe/BERLIN'), ('+02'), ('-5:30'), ('UTC+3'), ('GMT+5'), ('Etc/GMT+5')) AS zones (z) ORDER BY z;
SELECT '1900-07-01 12:00'::timestamptz AT TIME ZONE 'EST', '1967-07-01 12:00'::timestamptz AT TIME ZONE 'MST', '1940-07-01 12:00'::timestamptz AT TIME ZONE 'HST';
SELECT date_trunc('day', '2024-07-01 23:30'::timestamptz, 'CET'), date_trunc('day', '2024-07-01 23:30'::timestamptz, '-05:30');
-- refused
SELECT now() AT TIME ZONE 'localtime';
-- refused
SELECT now() AT TIME ZONE 'posixrules';
-- refused
SELECT now() AT TIME ZONE 'PST';
-- date_part() computes in floats, and rounds otherwise than extract().
SELECT date_part('epoch', at), date_part('second', at), date_part('milliseconds', at), date_part('epoch', at::date), date_part('second', at::time)
  FROM (VALUES ('0010-10-02 10:20:30.45679'::timestamp), ('0830-06-20 07:32:04.026756'), ('2024-02-29 23:59:59.999999'), ('1969-12-31 00:00:13.134217')) AS moments (at) ORDER BY at;
SELECT date_part('epoch', length), date_part('second', length) FROM (VALUES ('10 months 7659 days -02:36:20.974989'::interval), ('-333 months 0.1 seconds'), ('00:00:59.999999')) AS spans (length) ORDER BY length;
-- args: [{"a": 1}]
SELECT NULL::jsonb IS NOT DISTINCT FROM $1 AS same;
-- args: [5]
SELECT $1 IS DISTINCT FROM NULL::integer AS other;
-- The result of nullif is its first argument: a date beside a moment stays a date.
SELECT nullif(at::date, at), nullif(at::date, '2028-02-29'::timestamp), nullif(at, at::date), nullif(NULL::date, at), nullif(at::date, '2028-02-29') FROM m ORDER BY id;
-- OVERLAPS takes periods as two moments, or a moment and a length.
SELECT ('2030-01-01'::timestamp, '2030-01-05'::timestamp) OVERLAPS ('2030-01-04'::timestamp, '2030-01-09'::timestamp) AS a, ('2030-01-05'::timestamp, '2030-01-01'::timestamp) OVERLAPS ('2030-01-05'::timestamp, '2030-01-09'::timestamp) AS b, ('2030-01-05'::timestamp, '2030-01-05'::timestamp) OVERLAPS ('2030-01-05'::timestamp, '2030-01-05'::timestamp) AS c;
SELECT (date '2030-01-01', interval '3 days') OVERLAPS (date '2030-01-04', date '2030-01-05') AS a, (date '2030-01-01', interval '4 days') OVERLAPS (date '2030-01-04', interval '-1 day') AS b, (date '2030-01-01', date '2030-01-02') OVERLAPS (date '2029-12-31', interval '1 month') AS c;
SELECT (time '10:00', time '12:00') OVERLAPS (time '11:59', interval '1 hour') AS a, (time '23:00', interval '2 hours') OVERLAPS (time '00:30', time '01:30') AS b;
SELECT (NULL::timestamptz, '2030-01-02'::timestamptz) OVERLAPS ('2030-01-01'::timestamptz, '2030-01-03'::timestamptz) AS a, ('2030-01-02'::timestamptz, NULL::timestamptz) OVERLAPS ('2030-01-02'::timestamptz, '2030-01-02'::timestamptz) AS b, (NULL::timestamptz, NULL::timestamptz) OVERLAPS ('2030-01-02'::timestamptz, '2030-01-02'::timestamptz) AS c, ('2030-01-05'::timestamptz, NULL::timestamptz) OVERLAPS ('2030-01-01'::timestamptz, '2030-01-03'::timestamptz) AS d, ('2030-01-05'::timestamptz, '2030-01-09'::timestamptz) OVERLAPS ('2030-01-01'::timestamptz, NULL::timestamptz) AS e, ('2030-01-01'::timestamptz, '2030-01-02'::timestamptz) OVERLAPS ('2030-01-05'::timestamptz, NULL::timestamptz) AS f, ('2030-01-01'::timestamptz, NULL::interval) OVERLAPS ('2030-01-05'::timestamptz, NULL::timestamptz) AS g;
-- fails
SELECT (1, 2) OVERLAPS (1, 2);
-- fails
SELECT (date '2030-01-01', date '2030-01-01') OVERLAPS (time '10:00', time '11:00');
