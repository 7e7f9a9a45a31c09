-- to_char with templates for dates, intervals and numbers.
CREATE TABLE f (id integer PRIMARY KEY, at timestamptz, ts timestamp, d date, v interval, i integer, b bigint, p numeric, x double precision, t text);
INSERT INTO f VALUES (1, '2030-01-31 10:20:30.456789+00', '2030-01-31 22:05:06.7', '2030-12-29', '1 year 2 months 3 days 04:05:06.789', 1234, 9876543210, 1234.567, 1234.567, 'YYYY-MM-DD'), (2, '2028-02-29', '0001-01-01', '2027-01-03', '-1 year -2 months -3 days -04:05:06.789', -5, -5, -0.05, -0.05, 'HH24:MI'), (3, '9999-12-31 23:59:59.999999', '1999-12-31 12:00', '2021-01-03', '100:00', 0, 0, 0, 0, ''), (4, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL), (5, '2012-01-01 00:00:01', '2012-01-01 00:59', '2012-12-31', '0 days', 2147483647, 9223372036854775807, 99999.995, 1e15, 'FMDay');
SELECT id, to_char(at, 'YYYY-MM-DD HH24:MI:SS.US'), to_char(ts, 'YYYY-MM-DD"T"HH24:MI:SS.MS'), to_char(d, 'DD.MM.YYYY') FROM f ORDER BY id;
SELECT id, to_char(at, 'HH12:MI AM'), to_char(ts, 'HH:MI pm'), to_char(ts, 'hh:mi A.M.'), to_char(ts, 'HH P.M. p.m.'), to_char(at, 'FMHH:FMMI') FROM f ORDER BY id;
SELECT id, to_char(at, 'Month|MONTH|month|Mon|MON|mon|Day|DAY|day|Dy|DY|dy'), to_char(d, 'FMMonth|FMMONTH|FMmonth|FMDay|FMDAY|FMday') FROM f ORDER BY id;
SELECT id, to_char(d, 'DDD D ID Q WW IW IYYY IYY IY I IDDD W CC J YYY YY Y AD b.c.'), to_char(ts, 'FMDDD FMDD FMMM FMYYYY FMWW FMIW FMSS') FROM f ORDER BY id;
SELECT id, to_char(at, 'TZ tz TZH TZM OF'), to_char(ts, '[TZ] TZH OF'), to_char(at, 'SSSS SSSSS FF1 FF2 FF3 FF4 FF5 FF6') FROM f ORDER BY id;
SELECT id, to_char(at, 'DDth FMDDTH DDDth YYYYth HH24TH MIth SSth Qth'), to_char(at, '"quoted YYYY" YYYY \"MM\" "a\"b\\c"'), to_char(at, 'YYYYMMDDHH24MISS') FROM f ORDER BY id;
SELECT id, to_char(at, t), to_char(d, t), to_char(at, '') IS NULL, to_char(at, NULL), to_char(at, 'xyz - no patterns: q') FROM f ORDER BY id;
SELECT id, to_char(v, 'YYYY MM DD HH24 HH12 HH MI SS MS US SSSS AM YY Y'), to_char(v, 'FMHH24:FMMI:FMSS'), to_char(v, 'HH24:MI:SS.US') FROM f ORDER BY id;
SELECT to_char('10:20:30'::time::interval, 'HH12:MI PM'), to_char(interval '36 hours', 'HH24 HH12 AM'), to_char(interval '-90 minutes', 'HH24:MI');
SELECT to_char('2030-01-02'::date, 'YYYY'), to_char(now(), 'YYYY') = to_char(now(), 'YYYY');
-- fails
SELECT to_char(v, 'Month') FROM f;
-- fails
SELECT to_char(interval '1 day', 'TZ');
-- fails
SELECT to_char('10:20'::time, 'HH24', 1);
-- fails
SELECT to_char(true, 'x');
-- refused
SELECT to_char(at, 'TMMonth') FROM f;
-- refused
SELECT to_char(at, 'RM') FROM f;
-- refused
SELECT to_char(at, 'FXYYYY') FROM f;
-- Numbers.
SELECT id, to_char(i, '9999'), to_char(i, '0000'), to_char(i, 'FM9999'), to_char(i, '9,999,999,999'), to_char(i, 'FM9,999,999,999'), to_char(b, '9G999G999G999G999G999G999') FROM f ORDER BY id;
SELECT id, to_char(p, '99999.99'), to_char(p, '00000.00'), to_char(p, 'FM99999.99'), to_char(p, 'FM99990.00'), to_char(p, '99G999D99'), to_char(p, '9.9') FROM f ORDER BY id;
SELECT id, to_char(x, '99999.99'), to_char(x, 'FM99990.0099'), to_char(x, '9999999999999999'), to_char(x, '999990.000000000000') FROM f ORDER BY id;
SELECT id, to_char(i, 'S9999'), to_char(i, '9999S'), to_char(i, 'SG9999'), to_char(i, '9999MI'), to_char(i, 'MI9999'), to_char(i, 'PL9999'), to_char(i, '9999PL'), to_char(i, 'FMS9999'), to_char(i, 'FM9999MI') FROM f ORDER BY id;
SELECT to_char(12.34, '99V99'), to_char(12, '99V999'), to_char(1.5, '9V9'), to_char(12.4, '99V9');
SELECT to_char(485, '"Good number:"999'), to_char(485.8, '"Pre:"999" Post:" .999'), to_char(0.1, '9.9'), to_char(0.1, '0.9'), to_char(0, 'FM9.9'), to_char(-0.1, '99.99'), to_char(-0.4, '9'), to_char(5, '');
SELECT to_char(12345, '999'), to_char(-12345, '999.9'), to_char(99.5, '99'), to_char(99.5, '00.0'), to_char(148.5, '999.999'), to_char(148.5, 'FM999.990'), to_char(3148.5, '9G999D999');
SELECT to_char(NULL::integer, '9'), to_char(1, NULL), to_char(2::smallint, '09'), to_char(i, 'fm999,999'), to_char(p * 2, 'FM999,990.00') || ' €' FROM f ORDER BY id;
-- args: ["FM000"]
SELECT to_char(i, $1) FROM f WHERE id = 2;
-- fails
SELECT to_char(1, '9.9.9');
-- fails
SELECT to_char(1, 'S9S');
-- fails
SELECT to_char(1, 'S9MI');
-- fails
SELECT to_char(1, '9.9V9');
-- refused
SELECT to_char(1, 'RN');
-- refused
SELECT to_char(1, 'L9');
-- refused
SELECT to_char(1.5, '9.9EEEE');
-- refused
SELECT to_char(1, '9PR');
-- refused
SELECT to_char(1, '9th');
DROP TABLE f;
