-- GREATEST, LEAST, ANY, min and max of types that do not sort by their stored text; string_agg of bytea.
CREATE TABLE v (id integer PRIMARY KEY, d interval, j jsonb, a text[], n numeric[], i integer[], b bytea, u uuid, f double precision[]);
INSERT INTO v VALUES (1, '1 day', '{"a": 1}', '{b}', '{1.50,2}', '{1,10}', '\x01', '00000000-0000-0000-0000-000000000001', '{1.5}'),
    (2, '25 hours', '[1, 2]', '{a,z}', '{1.5,10}', '{1,9}', '\x0203', '00000000-0000-0000-0000-000000000002', '{10.5}'),
    (3, '1 month', '10', '{}', '{}', '{}', '\x', NULL, NULL), (4, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
SELECT id, greatest(d, '1 day 1 minute'), least(d, '2 days', NULL) FROM v ORDER BY id;
SELECT greatest('30 days'::interval, '1 month'), least('1 month'::interval, '30 days');
SELECT id, greatest(j, '9'), least(j, '9', NULL), greatest(j, '[]', '{}') FROM v ORDER BY id;
SELECT greatest('1.0'::jsonb, '1.00'), greatest('"a"'::jsonb, 'null', '2'), least('"a"'::jsonb, 'null', '2');
SELECT id, greatest(a, ARRAY['b']), least(n, ARRAY[1.5]), greatest(i, ARRAY[1, 9, 0]) FROM v ORDER BY id;
SELECT greatest(NULL::interval, NULL), least(b, '\x02'), greatest(b, '\x0202') FROM v ORDER BY id;
-- fails
SELECT greatest(j::json, '1') FROM v;
-- fails
SELECT greatest(d, 1) FROM v;
SELECT max(a), min(a), max(n), min(n), max(i), min(i) FROM v;
SELECT max(d), min(d), max(b), min(b) FROM v;
SELECT max(a) FILTER (WHERE id < 2), max(a) FROM v WHERE id > 10;
SELECT id % 2, max(i) FROM v GROUP BY id % 2 ORDER BY 1;
SELECT max(f), min(f) FROM v;
-- fails
SELECT max(j) FROM v;
-- fails
SELECT min(u) FROM v;
-- fails
SELECT max(id > 1) FROM v;
SELECT string_agg(b, '\x00' ORDER BY id), string_agg(b, NULL ORDER BY id DESC), string_agg(b, '' ORDER BY id) FROM v;
SELECT string_agg(b, '\xff'::bytea ORDER BY id) FILTER (WHERE id < 3) FROM v;
SELECT string_agg(b, b ORDER BY id) FROM v;
SELECT string_agg(b, '\x00') FROM v WHERE id > 10;
SELECT id % 2, string_agg(b, '\x00' ORDER BY id) FROM v GROUP BY 1 ORDER BY 1;
-- fails
SELECT string_agg(b, 'x'::text) FROM v;
-- refused
SELECT string_agg(DISTINCT b, '\x00'::bytea ORDER BY b) FROM v;
-- refused
SELECT array_agg(a) FROM v;
SELECT id FROM v WHERE d = ANY (ARRAY['24 hours'::interval, '30 days']) ORDER BY id;
SELECT id FROM v WHERE d IN ('24 hours', '30 days') ORDER BY id;
SELECT id FROM v WHERE d <> ALL (ARRAY['24 hours'::interval, '1 year']) ORDER BY id;
SELECT id, d = ANY ('{24 hours,NULL}'::interval[]), d <> ALL ('{24 hours,NULL}'::interval[]) FROM v ORDER BY id;
SELECT id, d = ANY (NULL::interval[]), d = ANY ('{}'::interval[]), d <> ALL ('{}'::interval[]) FROM v ORDER BY id;
SELECT id FROM v WHERE j = ANY (ARRAY['10.0'::jsonb, '[1, 2.0]']) ORDER BY id;
SELECT id FROM v WHERE j IN ('10.0', '[1, 2.0]') ORDER BY id;
SELECT id FROM v WHERE j NOT IN ('10.0', '[1]') ORDER BY id;
-- args: [[timedelta(days=1), None]]
SELECT id, d = ANY ($1) FROM v ORDER BY id;
-- args: [[timedelta(days=1)]]
SELECT id FROM v WHERE d <> ALL ($1) ORDER BY id;
SELECT id FROM v WHERE d > ALL (ARRAY['1 day'::interval]) ORDER BY id;
SELECT id FROM v WHERE d IN (SELECT interval '24 hours') ORDER BY id;
SELECT id FROM v WHERE (d, id) IN (SELECT interval '24 hours', 1) ORDER BY id;
SELECT id FROM v WHERE j = ANY (SELECT '10.00'::jsonb) ORDER BY id;
SELECT id FROM v WHERE n = ANY (SELECT ARRAY[1.5, 2.0]) ORDER BY id;
SELECT id FROM v WHERE n IN (ARRAY[1.5, 2.0], ARRAY[1.50, 10.0]) ORDER BY id;
SELECT generate_series(1, 2);
SELECT unnest(a) FROM v;
