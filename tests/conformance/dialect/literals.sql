-- Dates, times and intervals as PostgreSQL reads them.
SELECT '2030-1-5'::date, '2030-01-5'::date, '2030-1-05 3:04'::timestamp, '2030-1-5T3:4:5'::timestamp, '2030-1-5 3:4:5.25Z'::timestamptz;
SELECT '3:4'::time, '3:4:5'::time, '03:04:05.1'::time, '10:00:00.1234567'::time, '10:00:00.0000005'::time, '10:00:00.0000015'::time;
SELECT '2030-01-05 03:04:05.123456789'::timestamp, '2030-01-05 03:04:05.9999999'::timestamp, '2030-12-31 23:59:59.9999999'::timestamptz, '2030-12-31 23:59:59.9999999'::date;
SELECT '2030-01-05 03:04:05z'::timestamptz, '2030-01-05 03:04:05 Z'::timestamptz, '2030-01-05 03:04+2'::timestamptz, '2030-01-05 03:04-03:30'::timestamptz, '2030-01-05 03:04 +0230'::timestamptz, '2030-01-05 03:04+5:30'::timestamp;
SELECT 'epoch'::timestamptz, 'EPOCH'::timestamp, ' epoch '::date, 'epoch'::text::timestamptz;
SELECT x::date, x::timestamp, x::timestamptz FROM (VALUES ('2030-2-3'::text), ('2030-02-03T4:05:06.7890123'), (NULL)) AS v (x);
SELECT 'P1DT2H'::interval::text, 'P1Y2M3DT4H5M6.789S'::interval::text, 'PT0.5S'::interval::text, 'P2W'::interval::text, 'P-1DT-2H'::interval::text, 'PT-0.000001S'::interval::text, 'P1M'::interval::text, 'PT1M'::interval::text;
SELECT '1.5 days'::interval::text, '1.5 hours'::interval::text, '1.5 weeks'::interval::text, '1.5 months'::interval::text, '1.5 years'::interval::text, '0.1 month'::interval::text, '-1.5 days'::interval::text, '1.123456789 days'::interval::text, '1.1234567 seconds'::interval::text;
SELECT '1 h 2 m 3 s'::interval::text, '1h30m'::interval::text, '2 hrs 5 mins 7 secs'::interval::text, '1 y 2 mons 3 w 4 d'::interval::text, '1 yr 10 ms 5 us'::interval::text, '2 yrs 3 hr 1 msec'::interval::text, '5 usecs 7 msecs'::interval::text;
SELECT x::interval::text FROM (VALUES ('P1D'::text), ('1.5 h'), ('1 Day 2 HOURS'), (NULL)) AS v (x);
SELECT interval '1.5 days' = interval 'P1DT12H', interval '90 m' = interval 'PT1H30M', '2030-01-31'::date + interval 'P1M';
-- fails
SELECT '2030-2-30'::date;
-- fails
SELECT '2030-13-1'::timestamp;
-- fails
SELECT '1:60'::time;
-- fails
SELECT 'P'::interval;
-- fails
SELECT 'P1D2'::interval;
-- fails
SELECT '1 day 1 d'::interval;
-- fails
SELECT '1.5 seconds 3 ms'::interval;
-- fails
SELECT 'epoch'::time;
-- refused
SELECT 'now'::timestamptz;
-- refused
SELECT 'today'::date;
-- refused
SELECT 'PT'::interval;
-- refused
SELECT '23:59:59.9999999'::time;
-- refused
SELECT '24:00'::time;
-- refused
SELECT '1-2'::interval;
-- refused
SELECT '1 day ago'::interval;
-- refused
SELECT '2030/01/05'::date;
-- A uuid may have braces, and a hyphen after every fourth digit.
SELECT '{123e4567-e89b-12d3-a456-426614174000}'::uuid, '123E4567E89B12D3A456426614174000'::uuid, '123e-4567-e89b-12d3-a456-4266-1417-4000'::uuid, '{123e4567e89b12d3a456426614174000}'::text::uuid;
-- fails
SELECT '{123e4567e89b12d3a456426614174000'::uuid;
-- fails
SELECT '123e4567e89b12d3a456426614174000}'::uuid;
-- fails
SELECT '123e4567-e89b-12d3-a456-426614174000-'::uuid;
-- fails
SELECT '12-3e4567e89b12d3a456426614174000'::uuid;
-- fails
SELECT ' 123e4567e89b12d3a456426614174000'::uuid;
