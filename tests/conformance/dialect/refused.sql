-- PostgreSQL runs these; a lane refuses each with DialectError. A statement that slips through fails the suite.
CREATE TABLE r (id bigint PRIMARY KEY, i integer, n bigint, d double precision, p numeric, x text, ok boolean, at timestamptz, j jsonb, u uuid);
INSERT INTO r (id, i, n, x, j) VALUES (1, 1, 1, 'a', '{"a": 1}'), (2, 2, 2, 'b', '[]');
SELECT $1;
SELECT 1_000;
SELECT E'a\n';
SELECT U&'a';
SELECT $$a$$;
-- refused
SELECT x'ff';
SELECT 0x10;
SELECT 'a'
'b';
SELECT ~1;
SELECT 1 | 2;
SELECT 2 ^ 0.5;
SELECT @ -5;
-- refused
SELECT ROW(1, 2);
SELECT DISTINCT j FROM r;
SELECT id FROM r ORDER BY j;
SELECT 5::jsonb::text FROM r WHERE false;
SELECT id FROM r WHERE x ~ 'a';
-- refused
SELECT id FROM r WHERE x SIMILAR TO 'a';
SELECT id FROM r WHERE i BETWEEN SYMMETRIC 2 AND 1;
-- refused
SELECT x COLLATE "C" FROM r;
SELECT at AT TIME ZONE 'UTC' FROM r;
SELECT '2030-01-01'::date;
-- refused
SELECT 1::real;
SELECT 'a'::char(3);
-- refused
SELECT user;
-- refused
SELECT DISTINCT ON (x) x FROM r;
-- refused
SELECT id FROM r LIMIT (SELECT 1);
SELECT s.id FROM r, LATERAL (SELECT r.id) AS s;
SELECT a.id FROM r a CROSS JOIN LATERAL (SELECT a.id) AS s;
-- refused
SELECT a FROM (SELECT random() AS a) AS s;
-- refused
WITH s AS (SELECT gen_random_uuid() AS a) SELECT a FROM s;
-- refused
SELECT random() AS a FROM r ORDER BY a;
-- refused
WITH s AS (DELETE FROM r RETURNING id) SELECT count(*) FROM r;
SELECT 1 INTERSECT ALL SELECT 1;
SELECT x FROM r GROUP BY GROUPING SETS ((x), ());
SELECT x FROM r GROUP BY ROLLUP (x);
-- refused
SELECT id INTO other FROM r;
-- refused
SELECT id FROM r TABLESAMPLE BERNOULLI (50);
-- refused
SELECT id FROM ONLY r;
-- refused
SELECT id FROM interlock_x;
-- refused
SELECT name FROM sqlite_schema;
-- refused
SELECT relname FROM pg_class;
-- refused
SELECT i AS "A", n AS a FROM (SELECT i AS "A", n AS a, i, n FROM r) AS s;
-- refused
SELECT 1 FROM r AS "A" JOIN r AS a ON true;
-- refused
INSERT INTO r (id, i) VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET i = (SELECT 1);
INSERT INTO r (id, i) VALUES (1, 1) ON CONFLICT ON CONSTRAINT r_pkey DO NOTHING;
-- refused
UPDATE r SET i = 1 RETURNING (SELECT 1);
-- refused
BEGIN;
-- refused
SET search_path TO public;
-- refused
EXPLAIN ANALYZE SELECT 1;
-- refused
CREATE TABLE q (a real);
CREATE TABLE q (a timestamp);
CREATE TABLE q (a date);
CREATE TABLE q (a char(5));
CREATE TABLE q (a timestamptz(3));
-- refused
CREATE TABLE q (a integer, b integer GENERATED ALWAYS AS (a + 1) VIRTUAL);
CREATE TABLE q (a integer REFERENCES r);
-- refused
CREATE TABLE q (a integer, CHECK (a > 0) NOT VALID);
-- refused
CREATE TABLE q (a timestamptz CHECK (a < now()));
CREATE TABLE q (j jsonb UNIQUE);
-- refused
CREATE TABLE q (a integer, "A" integer);
-- refused
SELECT 1 AS a INTO q;
-- refused
CREATE TEMPORARY TABLE q (a integer);
-- refused
CREATE UNLOGGED TABLE q (a integer);
-- refused
CREATE TABLE q (LIKE r);
-- refused
CREATE TABLE interlock_q (a integer);
-- refused
CREATE TABLE q (a integer) PARTITION BY RANGE (a);
-- refused
CREATE INDEX q ON r USING gin (x);
-- refused
CREATE INDEX q ON r (x) INCLUDE (i);
-- refused
CREATE TABLE q (a integer, EXCLUDE (a WITH =));
-- refused
CREATE TABLE q (a integer UNIQUE NULLS NOT DISTINCT);
SELECT count(*) FROM r WHERE x LIKE ANY (ARRAY['a']);
-- refused
SELECT 'abc'::bytea, '2030-01-01'::timestamptz;
-- refused
SELECT '0x10'::integer;
-- refused
SELECT 'NaN'::double precision;
-- refused
SELECT 'infinity'::timestamptz;
CREATE TABLE existing (a integer);
-- refused
CREATE TABLE "Existing" (a integer);
-- refused
CREATE TABLE IF NOT EXISTS "EXISTING" (a integer);
-- refused
CREATE INDEX "Existing" ON existing (a);
-- refused
CREATE TABLE q (id bigserial PRIMARY KEY, rowid integer);
-- refused
CREATE TABLE q (a integer CHECK (a > (SELECT 1)));
-- refused
CREATE INDEX q ON r (x) WHERE at < now();
-- refused
SELECT id FROM r WHERE x LIKE 'a' ESCAPE '';
-- refused
SELECT sum(i) FROM r WHERE (SELECT sum(r.i) FROM existing) > 1;
SELECT nullif(i, n) FROM r;
SELECT id FROM r WHERE p IN (SELECT id FROM r);
SELECT count(*) FROM r GROUP BY now();
