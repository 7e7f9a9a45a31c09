-- What campaigns of drawn statements found.
CREATE TABLE f (id integer PRIMARY KEY, x text, b bytea, at timestamptz, ts timestamp, tags text[], js json);
INSERT INTO f VALUES (1, 'a', '\x00', '2030-01-31 10:20:30+02', '2030-01-31 10:20:30.5', '{a,b}', '{}'), (2, NULL, NULL, NULL, NULL, NULL, NULL);
SELECT ('{2030-01-31}'::date[])[NULL];
SELECT id, tags[NULL], (ARRAY[1, 2])[id], tags[id + NULL] FROM f ORDER BY id;
SELECT '1' = ANY (NULL), 'a' = ANY ('{a,b}'), NULL = ANY ('{a,b}'), 'a' <> ALL ('{a,b}');
-- args: ["a", ["a", None]]
SELECT $1 = ANY ($2);
-- fails
SELECT tags = ANY (ARRAY[tags, '{a}']) FROM f;
-- fails
SELECT tags <> ALL (ARRAY[tags]) FROM f;
SELECT jsonb_build_object(at, 1, 'k', at) FROM f WHERE id = 1;
SELECT jsonb_build_object(ts, 1, '2030-01-31'::date, ts) FROM f WHERE id = 1;
SELECT jsonb_object_agg(at, ts ORDER BY id) FROM f WHERE id = 1;
-- fails
SELECT jsonb_build_object(at, 1) FROM f WHERE id = 2;
-- fails
SELECT concat_ws('a');
-- fails
SELECT concat_ws(NULL);
SELECT concat_ws('a', NULL), concat_ws(',', 'b', NULL, 'c');
-- fails
SELECT overlay('' PLACING 'ok' FROM 2147483647);
-- fails
SELECT overlay('abc' PLACING 'ok' FROM 2 FOR 2147483647);
SELECT overlay('abc' PLACING 'ok' FROM 2147483645), overlay('abc' PLACING 'ok' FROM 2 FOR -1);
-- refused
SELECT string_agg(DISTINCT b, '\x2c'::bytea ORDER BY b) FROM f;
-- refused
SELECT round(1.5, 2147483647);
-- refused
SELECT trunc(1.5, -2147483648);
-- refused
SELECT NULL IS DISTINCT FROM js FROM f;
-- fails
SELECT id FROM f WHERE EXISTS (SELECT 1 FROM (VALUES (1)) AS v (n) JOIN f AS o USING (id));
-- fails
SELECT id FROM f WHERE EXISTS (SELECT 1 FROM f AS o JOIN (VALUES (1)) AS v (n) USING (id));
SELECT id FROM f WHERE EXISTS (SELECT 1 FROM (VALUES (1)) AS v (id) JOIN f AS o USING (id) WHERE o.id = f.id) ORDER BY id;
-- fails
SELECT id FROM f WHERE EXISTS (SELECT 1 FROM (VALUES (1)) AS v (n) FULL JOIN f AS o ON o.id = f.id);
-- fails
SELECT v.n FROM (VALUES (1)) AS v (n) FULL JOIN f AS o ON o.id = o.id;
SELECT v.n, o.id FROM (VALUES (1), (7)) AS v (n) FULL JOIN f AS o ON o.id = v.n ORDER BY 1, 2;
CREATE TABLE g (id integer PRIMARY KEY, j jsonb, v varchar(20), c time);
INSERT INTO g VALUES (1, '{"b": 1, "a": [1,2]}', 'a', '23:59:59.4'), (2, '"x"', '"x"', '12:00:00.5'), (3, NULL, '', NULL);
SELECT id, j::json::varchar = v, j::json::text IS DISTINCT FROM v, j::json, c::time(0) FROM g ORDER BY j::json::text, id;
-- refused
SELECT '23:59:59.999999'::time(0);
-- refused
SELECT jsonb_object_agg(DISTINCT id, v ORDER BY id) FROM g;
