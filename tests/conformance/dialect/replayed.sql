-- What replays of other projects' suites found.
CREATE TABLE n (a integer, b text, d jsonb);
INSERT INTO n VALUES (1, 'x', '[1, {"k": "v"}]'), (2, 'y', '7'), (2, 'z', NULL);
-- ANY needs a comparison; rows need a value; COLLATE needs text.
-- fails
SELECT 33 * ANY ('{1,2}');
-- fails
SELECT ROW() = ROW();
-- fails
SELECT 5 COLLATE "pg_c_utf8";
-- fails
SELECT (a < 2) COLLATE "pg_c_utf8" FROM n;
SELECT '12' COLLATE "pg_c_utf8" > 2, '12' COLLATE "pg_c_utf8" || 'x';
-- fails
SELECT b COLLATE "C" < 'y' COLLATE "POSIX" FROM n;
-- Rows as values.
-- refused
SELECT count(n.*) FROM n;
-- refused
SELECT n.* IS NULL FROM n;
-- refused
UPDATE n SET (a, b) = ROW(v.*) FROM (VALUES (1, 'q')) AS v (i, j) WHERE v.i = n.a;
-- Constants are computed before the statement runs.
-- refused
SELECT CASE WHEN a > 0 THEN 1 ELSE 1 / 0 END FROM n;
-- refused
SELECT CASE a WHEN 1 THEN 'one' WHEN 1 / 0 THEN 'none' END FROM n;
-- refused
SELECT coalesce(a, 1 / 0) FROM n;
-- refused
SELECT (1 / 0 > 0) AND false;
-- refused
SELECT a > 0 OR 1 % 0 = 0 FROM n;
-- fails
SELECT 1 / 0 FROM n WHERE false;
SELECT CASE WHEN true THEN 1 ELSE 1 / 0 END, CASE WHEN false THEN 1 / 0 END, CASE 1 WHEN 1 THEN 2 ELSE 1 / 0 END FROM n;
SELECT coalesce(1, 1 / 0), coalesce(a, 1, 1 / 0), coalesce(NULL, 2, 1 / 0), NULL / 0 FROM n ORDER BY 2;
SELECT false AND 1 / 0 > 0, true OR 1 / 0 > 0, EXISTS (SELECT 1 / 0);
-- refused
SELECT date_trunc('fortnight', timestamp '2030-01-01') FROM n WHERE false;
-- refused
SELECT CASE WHEN a > 0 THEN sqrt(4) ELSE sqrt(-1) END, coalesce(a, 2147483647 + 1) FROM n;
-- fails
UPDATE n SET a = 1 / 0 WHERE false;
SELECT CASE WHEN a > 9 THEN sqrt(4) ELSE length('it''s') / 2 END, coalesce(a, 2147483646 + 1), a + 5 / 2 FROM n ORDER BY a;
-- Windows, DISTINCT ON, and aggregates in ORDER BY alone.
-- refused
SELECT jsonb_object_agg_unique(b, a) OVER (ORDER BY a) FROM n;
-- fails
SELECT length(b) OVER () FROM n;
-- refused
SELECT DISTINCT ON (a, b) b FROM n ORDER BY a;
-- refused
SELECT DISTINCT ON (row_number() OVER (ORDER BY b)) b FROM n ORDER BY row_number() OVER (ORDER BY b);
SELECT DISTINCT ON (a, b) b FROM n ORDER BY b, a;
SELECT 'all' AS rows FROM n ORDER BY max(a);
SELECT 'all' AS rows FROM n HAVING count(*) > 2 ORDER BY min(b);
-- LIMIT reads the query around, not its own.
-- fails
SELECT a FROM n LIMIT a;
-- refused
SELECT (SELECT s FROM generate_series(1, 9) AS s ORDER BY s LIMIT 1 OFFSET n.a) FROM n;
-- WITH inside WITH, forward, and beside a table of its name.
WITH w AS (SELECT 1 AS v) SELECT * FROM (WITH w AS (SELECT 2 AS v) SELECT * FROM w) AS s, w;
WITH w AS (SELECT 1) (SELECT * FROM w UNION ALL (WITH w AS (SELECT 2) SELECT * FROM w) UNION ALL (SELECT * FROM w)) ORDER BY 1;
-- fails
WITH w AS (SELECT 1), w AS (SELECT 2) SELECT * FROM w;
-- refused
WITH RECURSIVE w (i) AS (SELECT * FROM v UNION ALL SELECT i + 1 FROM w WHERE i < 3), v (i) AS (VALUES (1)) SELECT * FROM w;
-- refused
WITH n AS (SELECT a FROM public.n) SELECT * FROM n;
-- fails
SELECT * FROM n AS x JOIN n AS y USING (a, a);
-- fails
WITH w AS (SELECT 1 AS v), w AS (DELETE FROM n RETURNING a), v AS (SELECT 2) SELECT * FROM w;
-- fails
WITH v AS (DELETE FROM n RETURNING a), w AS (SELECT 1 AS v), w AS (SELECT 2) SELECT * FROM w;
-- An aggregate of the query around, and its columns.
-- refused
SELECT EXISTS (SELECT 1 FROM n AS i WHERE i.a > min(n.a)) FROM n;
SELECT n.a, s.k FROM n, LATERAL (SELECT n.*) AS s (k) ORDER BY n.b;
-- Locks reach into subqueries.
SELECT * FROM (SELECT a FROM n) AS s ORDER BY a FOR UPDATE;
-- fails
SELECT * FROM (SELECT DISTINCT a FROM n) AS s FOR UPDATE;
-- fails
SELECT * FROM (SELECT a FROM n GROUP BY a) AS s FOR UPDATE;
-- fails
SELECT * FROM (SELECT count(*) FROM n) AS s FOR UPDATE;
-- fails
SELECT * FROM (SELECT 1 UNION SELECT 2) AS s FOR UPDATE;
-- Parts of documents: jsonb by a path, json as it was written.
SELECT d[0], d[1]['k'], d['0'], d[1][0], d[NULL::integer] FROM n ORDER BY a, b;
SELECT ('{"a": {"b": [1, 2]}}'::jsonb)['a']['b'][-1], ('"s"'::jsonb)[0], ('{"1": 5}'::jsonb)[1];
SELECT '{"a":{"b":1}, "a":[1,2 ,3]}'::json ->> 'a', '{"a":{"b":1}}'::json -> 'a', '[1,"x",null,{"y":1}]'::json -> 3;
SELECT '[1,"x"]'::json ->> 1, '[1,"x"]'::json -> -1, '[1]'::json -> 'a', '5'::json -> 0, '{"a":1}'::json -> 0, '[null]'::json ->> 0;
SELECT '{"a": {"b":{"c": "d"}}}'::json #>> '{a}', ' [1, 2] '::json #> '{}', '"x"'::json #>> '{}', '[1,[2,3]]'::json #>> '{1,-1}';
-- fails
SELECT '{"a": "x\u0000y"}'::json ->> 'a';
-- fails
SELECT '{"a": 1, "b": "\ud83d\ud83d"}'::json -> 'a';
SELECT '{"a": "\ud83d\ude04 \u00e9", "b": "\\u0000"}'::json ->> 'a';
-- refused
SELECT '{b,a}'::text[] COLLATE "C";
-- refused
SELECT ('{1,2}'::integer[])[1][1];
-- The end of a day, and blanks between bytes.
SELECT make_timestamp(1999, 12, 31, 24, 0, 0), make_timestamp(2013, 7, 15, 12, 30, 60), make_time(12, 59, 60);
-- fails
SELECT make_timestamp(1999, 12, 31, 24, 0, 1);
-- refused
SELECT make_time(24, 0, 0);
SELECT decode(' 0a 0b', 'hex');
-- fails
SELECT decode('0 a', 'hex');
-- Beyond the limits of a lane or of Python.
-- refused
SELECT '1e2000'::numeric;
-- refused
SELECT '.000_1'::numeric;
-- refused
SELECT '178000000 years'::interval;
-- refused
SELECT '1'::numeric(1000, 999) * '1'::numeric(1000, 999);
-- ON CONFLICT with a column twice, and a table of that name.
CREATE TABLE excluded (id integer PRIMARY KEY, b text);
INSERT INTO excluded VALUES (1, 'x') ON CONFLICT (id, id) DO NOTHING;
INSERT INTO excluded VALUES (1, 'y') ON CONFLICT (id, id) DO NOTHING;
-- refused
INSERT INTO excluded VALUES (1, 'y') ON CONFLICT (id) DO UPDATE SET b = 'z' RETURNING excluded.*;
-- Definitions.
-- refused
CREATE TABLE o (a integer CONSTRAINT set NOT NULL, b integer CONSTRAINT set NOT NULL);
-- refused
CREATE TABLE o (a integer) ON COMMIT DELETE ROWS;
-- refused
CREATE TABLE o (a integer NOT NULL NO INHERIT);
-- Every digit counts.
SELECT gcd(12345678901234567890.123456789, -0.005), lcm(12345678901234567890.123456789, 0.005), gcd(6::numeric, 4), lcm(-2.5, 3);
-- Intervals of one field.
SELECT INTERVAL '1' DAY, INTERVAL '-5' MONTH, INTERVAL '2' YEAR, INTERVAL '+90' MINUTE, INTERVAL '36' HOUR, INTERVAL '61' SECOND;
SELECT CAST('3' AS INTERVAL DAY), date '2030-01-31' + INTERVAL '1' MONTH, now() - INTERVAL '1' DAY < now();
-- refused
SELECT INTERVAL '1-2' YEAR TO MONTH;
-- refused
SELECT INTERVAL '1.5' DAY;
-- refused
SELECT length(repeat('ab', 6000000));
-- Paths are verified as far as they are followed.
-- fails
SELECT jsonb_insert('[]', '{c,0}', '1');
-- fails
SELECT jsonb_insert('[{"a": 1}]', '{a,b}', '1');
SELECT jsonb_insert('{"a": []}', '{b,NULL}', '1'), jsonb_insert('{"a": [2]}', '{a,0}', '1', true), jsonb_insert('{"a": 5}', '{a,b}', '1');
-- fails
SELECT jsonb_insert('{"a": {}}', '{a,NULL}', '1');
-- refused
UPDATE n SET a = v.i FROM (VALUES (1, 'x')) AS v (i, j) WHERE v.j = n.b RETURNING n.a, v;
-- refused
ALTER INDEX n RENAME TO other;
-- refused
CREATE TABLE o (a integer CONSTRAINT one NOT NULL CONSTRAINT two NOT NULL);
SELECT casefold('AbC İıI ẞß ǄǅǆΣσς ŉ'), array_position('{}'::integer[], 5, NULL), array_position('{5,5}'::integer[], 5, 2);
-- refused
SELECT DISTINCT ON (a) a, generate_series(1, 3) AS g FROM n ORDER BY a;
SELECT DISTINCT a, generate_series(1, 2) AS g FROM n ORDER BY a, g;
-- refused
SELECT regexp_match('llmmff', '^(l*){1,1}?(.*)$');
SELECT regexp_match('llmmff', '^(l){2}(m{1,2})(f*)$');
SELECT width_bucket(0, -1e100::numeric, 1, 10), width_bucket(1, 1e100::numeric, 0, 10), width_bucket(3.5, 1, 5, 4);
-- fails
SELECT date_bin('200000000 days', timestamp '2030-02-01', timestamp '2030-01-01');
SELECT array_position(ARRAY['x'], NULL, NULL);
CREATE INDEX n_by_a ON n (a);
-- refused
ALTER TABLE n_by_a RENAME TO n_by_b;
-- refused
SELECT * FROM generate_series(timestamp '2021-01-31', timestamp '2021-02-10', interval '1 month -29 days');
SELECT count(*) FROM generate_series(timestamp '2021-01-31', timestamp '2022-02-10', interval '1 month 1 day');
-- fails
SELECT generate_series(1, 2) FOR UPDATE;
-- fails
SELECT * FROM (SELECT generate_series(1, 2)) AS s FOR UPDATE;
