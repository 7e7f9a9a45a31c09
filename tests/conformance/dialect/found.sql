-- What searching found: statements that once ran with another meaning than PostgreSQL's.
CREATE TABLE t (id integer PRIMARY KEY, i integer, n bigint, d double precision, p numeric, x text, v varchar(4), ok boolean, at timestamptz);
INSERT INTO t VALUES (1, 10, 100, 1.5, 1.50, '10', 'ab', true, '2030-01-01 00:00:00+00'), (2, 9, 9, -0.25, 1.4, '9.0', '9.00', false, NULL), (3, NULL, 9007199254740993, 9007199254740992, 9.00, '9', 'x', NULL, NULL);
CREATE TABLE w (id bigserial PRIMARY KEY, i integer, x text, v varchar(4), p numeric(8,1));
-- The collation of numeric stays where numerics are compared.
SELECT id FROM t WHERE CASE WHEN p > 1 THEN x ELSE '' END < '9' ORDER BY id;
SELECT id FROM t WHERE CASE WHEN p > 1 THEN x ELSE '' END = '9.00' ORDER BY id;
SELECT id FROM t WHERE v = (CASE WHEN p > 1 THEN x ELSE v END) ORDER BY id;
SELECT id FROM t WHERE (p > 1)::text IN ('true', x) ORDER BY id;
SELECT id FROM t WHERE (p > 1)::text < 'z' AND nullif(p, 1.5)::text >= '1' ORDER BY id;
SELECT id FROM t ORDER BY CASE WHEN p > 1 THEN x ELSE '' END;
SELECT CASE WHEN p > 1 THEN x ELSE '' END AS y FROM t ORDER BY y;
SELECT CASE WHEN p > 1 THEN x ELSE '' END AS y FROM t ORDER BY 1 DESC;
SELECT CASE WHEN p > 1 THEN x ELSE '' END AS y, count(*) FROM t GROUP BY y ORDER BY y;
SELECT min(CASE WHEN p > 1 THEN x ELSE '' END), max(CASE WHEN p > 1 THEN x END), count(DISTINCT CASE WHEN p > 1 THEN x END) FROM t;
SELECT DISTINCT CASE WHEN p > 1 THEN x ELSE '' END AS y FROM t ORDER BY 1;
SELECT CASE WHEN p > 1 THEN x ELSE '' END FROM t UNION SELECT v FROM t ORDER BY 1;
SELECT s.y FROM (SELECT CASE WHEN p > 1 THEN x ELSE '' END AS y FROM t) AS s WHERE s.y < '9' OR s.y = '9.00' ORDER BY s.y;
WITH s AS (SELECT CASE WHEN p > 1 THEN x ELSE '' END AS y FROM t) SELECT a.y FROM s AS a JOIN t ON t.v = a.y;
SELECT id FROM t WHERE v IN (SELECT CASE WHEN p > 1 THEN x ELSE '' END FROM t);
SELECT nullif(CASE WHEN p > 1 THEN x END, '9.00') FROM t ORDER BY id;
-- A key of ORDER BY is not the number of a column because SQLite makes it 0 or 1.
SELECT id FROM t ORDER BY (3 IS NOT NULL) DESC, id;
SELECT id FROM t ORDER BY (3 IS NULL), id DESC;
SELECT id FROM t ORDER BY (false AND i > 0), id;
SELECT (false AND i > 0) AS k, count(*) FROM t GROUP BY false AND i > 0;
SELECT id FROM t ORDER BY (true OR i > 0) DESC, id;
SELECT id FROM t ORDER BY true;
SELECT id FROM t ORDER BY NULL;
SELECT id FROM t ORDER BY 5::integer;
-- INSERT … SELECT sorts and compares what was selected, and converts it then.
INSERT INTO w (x) SELECT i FROM t ORDER BY 1 LIMIT 1;
INSERT INTO w (i) SELECT DISTINCT p FROM t;
INSERT INTO w (x) SELECT i::text FROM t ORDER BY t.i LIMIT 1 RETURNING x;
INSERT INTO w (i, x) SELECT n, 'same' FROM t WHERE id < 3 ORDER BY n RETURNING i, x;
INSERT INTO w (x, i) SELECT i, d FROM t WHERE id < 3 RETURNING x, i;
-- Each column of an IN list is compared in a type of its own.
SELECT 9007199254740993 IN (9007199254740992, d) FROM t;
SELECT id FROM t WHERE d IN (1.5, 2) OR d IN (-0.25, NULL) ORDER BY id;
SELECT n IN (i, 9), i IN (n, p), 9007199254740993 IN (9007199254740992, 1.5::double precision) FROM t ORDER BY id;
SELECT (SELECT x FROM t WHERE id = 1::double precision);
-- LIKE looks at the end of its pattern only when it gets there.
SELECT 'abc' LIKE 'x\', 'abc' LIKE 'abc\', '' LIKE '\', '' LIKE '%\', 'abc' LIKE 'abc%\', 'abc' LIKE '%c\', 'ab' LIKE '%___\', 'a' LIKE '_%_\';
SELECT 'abc' LIKE '%\';
SELECT 'abc' LIKE 'ab\';
SELECT 'abc' LIKE '%b\';
SELECT 'abc' LIKE '_%_\';
SELECT 'abc' LIKE '%__%_\';
SELECT 'abc' LIKE 'a!' ESCAPE '!';
SELECT 'abc' LIKE 'abc!' ESCAPE '!', 'a!c' LIKE 'a!!_' ESCAPE '!';
-- Moments at the ends of what can be kept.
SELECT '2030-01-01 00:00:00+15:59'::timestamptz, '2030-01-01 00:00:00-15:59'::timestamptz;
SELECT '2030-01-01 00:00:00+16:00'::timestamptz;
SELECT '2030-01-01 00:00:00-16'::text::timestamptz;
-- refused
SELECT '0001-01-01 00:00:00+10'::timestamptz;
-- refused
SELECT '0001-01-01 00:00:00+10'::text::timestamptz;
-- refused
SELECT '9999-12-31 23:59:59-10'::timestamptz;
SELECT '0001-01-01 00:00:00+00'::timestamptz, '9999-12-31 23:59:59.999999+00'::timestamptz;
-- What PostgreSQL may read, and a lane does not.
-- refused
SELECT '0x10'::text::integer;
-- refused
SELECT '1_000'::text::bigint;
-- refused
SELECT 'NaN'::text::numeric;
-- refused
SELECT 'Infinity'::text::double precision;
-- What PostgreSQL finds though no table has it.
-- refused
UPDATE t SET i = i + 1 RETURNING old.i, new.i;
-- refused
DELETE FROM t RETURNING old.*;
-- refused
SELECT count(t) FROM t;
-- refused
SELECT t FROM t;
-- refused
SELECT t.ctid FROM t;
-- refused
SELECT xmin FROM t;
SELECT id, x FROM t GROUP BY id;
SELECT x, i FROM t GROUP BY x;
-- A plus sign is an operator, which text does not have.
SELECT +i FROM t;
SELECT +x FROM t;
SELECT 1 + -1, id + 1, (1) + 1, i + 1 AS j, count(*) + 1, CASE WHEN ok THEN 1 END + 1 FROM t WHERE id = 1 GROUP BY id, i, ok;
-- args: ["ab"]
INSERT INTO w (x, v) VALUES ($1, $1);
-- args: ["ab"]
UPDATE w SET v = $1, x = $1::text WHERE v IS DISTINCT FROM $1 RETURNING v, x;
SELECT round($1, 2);
-- Operators end where PostgreSQL's lexer ends them.
SELECT 5%-3;
SELECT id FROM t WHERE i!=-1;
SELECT 5 % -3, 2*-1, 2/-1, 1<-1, 1<=-1, 1<>-1, 1=-1, 2-1, 2- -1;
-- Definitions.
CREATE TABLE both_ways (a integer NOT NULL NULL);
CREATE TABLE both_ways (a integer NULL PRIMARY KEY);
CREATE TABLE both_ways (a serial NULL PRIMARY KEY);
CREATE TABLE odd ("a CONSTRAINT b" integer NULL, c integer, CHECK (odd.c > 0));
ALTER TABLE odd ADD COLUMN "x CONSTRAINT y" integer NOT NULL DEFAULT -5;
ALTER TABLE odd ADD COLUMN z text NOT NULL DEFAULT 'a CONSTRAINT (b)';
INSERT INTO odd (c) VALUES (1) RETURNING *;
INSERT INTO odd (c) VALUES (0);
SELECT * FROM odd;
-- A value that is chosen among texts has the type of the first one; a varchar stays one.
SELECT coalesce(v, 'x'), coalesce(x, v), coalesce(v, x), CASE WHEN ok THEN v ELSE 'b' END, nullif(v, 'a'), nullif(x, v), greatest(v, x), least(x, v) FROM t ORDER BY id;
UPDATE t SET v = coalesce(v, 'far too long') WHERE id = 1 RETURNING v;
UPDATE t SET v = CASE WHEN ok THEN 'far too long' ELSE v END WHERE id = 1;
SELECT ARRAY[v, 'a'] FROM t;
-- Chance is asked for each row, whatever indexes there are.
-- refused
SELECT id FROM t WHERE id IN (1, floor(random() * 3)::integer);
-- refused
SELECT id FROM t WHERE id = ANY (ARRAY[1, floor(random() * 3)::integer]);
-- A minus that overflows.
SELECT right('abc', -2147483648), right('abc', -2147483647), left('abc', -2147483648);
-- An empty document is left alone.
SELECT '[]'::jsonb #- '{a}', jsonb_set('[]', '{a}', '1', false), jsonb_set('{}', '{a,b}', '1');
SELECT jsonb_set('[]', '{a}', '1');
-- Both sides of unknown type, and an ANY without its parentheses.
SELECT '{}' @> '{}';
SELECT id FROM t WHERE 'a' = ANY x;
SELECT ('[1]'::jsonb)[0];
-- What a lenient parser would take apart, and lose some of.
SELECT extract(epoch FROM interval '2 weeks 02:30'), extract(epoch FROM interval '1 year -02:30:15'), extract(epoch FROM '1 year 02:30'::interval), extract(epoch FROM interval '2 hours'::interval);
-- refused
SELECT extract(epoch FROM interval '.5 day');
-- refused
SELECT extract(epoch FROM interval '13 -3 hours');
-- refused
SELECT extract(epoch FROM interval '2 minutes -0.25');
SELECT bigint '5'::text;
SELECT (bigint '5')::text, timestamptz '2030-01-01' > '2029-01-01';
-- Floats are written with the fewest digits that are nearer to them than to their neighbours.
SELECT (-8.78844136492254e+16)::double precision::text, 9007199254740993::double precision::text, 5e-324::double precision::text, to_jsonb(1.964373605437321e+16::double precision), 2e22::double precision::text;
-- refused
SELECT '{a\b}'::text[];
-- Arguments with words between them.
SELECT position('b' in 'a' || 'b'), position('a' || 'b' in 'cab'), substring('abcdef' from 1 + 1 for 2 * 1), substring('abc' || 'def' from 2), trim(both 'a' || 'b' from 'abcba'), trim(leading 'x' from 'x' || 'yx'), trim('a' from 'aba'), extract(year from '2030-01-01'::timestamptz + interval '1 year');
SELECT substring('abcdef' for 2), substring('abcdef' from -1 for 4);
SELECT trim(from 'a'), trim(both from '  a '), trim('  a '), btrim('xax', 'x');
-- SQLite ignores the case of a WITH query's name, and the schema before a table's.
CREATE TABLE near (id integer PRIMARY KEY, i integer, x text);
INSERT INTO near VALUES (1, 10, 'a'), (2, 20, 'b'), (3, NULL, NULL);
CREATE TABLE far (k integer, y text);
INSERT INTO far VALUES (NULL, 'n'), (1, 'one'), (7, 'seven');
CREATE TABLE needed (k integer NOT NULL, z text);
INSERT INTO needed VALUES (1, 'uno'), (2, 'dos');
-- refused
WITH "Near" AS (SELECT 7 AS id) SELECT id FROM near ORDER BY id;
-- refused
WITH near AS (SELECT 7 AS id) SELECT id FROM public.near ORDER BY id;
-- refused
WITH near AS (SELECT 7 AS id, 1 AS i, 'q' AS x) UPDATE near SET x = far.y FROM far WHERE far.k = near.id RETURNING near.id;
-- refused
WITH near AS (SELECT 7 AS id, 1 AS i, 'q' AS x) DELETE FROM near USING far WHERE far.k = near.id RETURNING near.id;
-- refused
WITH "A" AS (SELECT 1 AS x) SELECT (WITH a AS (SELECT 2 AS x) SELECT "A".x FROM "A") AS y;
WITH near AS (SELECT 7 AS id) SELECT id FROM near;
WITH a AS (SELECT 1 AS x) SELECT (WITH b AS (SELECT x + 1 AS x FROM a) SELECT a.x + b.x FROM a, b) AS y;
-- A relation of the statement may have the name that a translated subquery has.
SELECT s.id FROM near AS s WHERE s.id > ANY (SELECT k FROM needed) ORDER BY 1;
SELECT s.id FROM near AS s WHERE s.id >= ALL (SELECT k FROM needed) ORDER BY 1;
SELECT s.id FROM near AS s WHERE s.id::bigint <> ANY (SELECT k FROM needed WHERE k < 2) ORDER BY 1;
SELECT s.id FROM near AS s, near AS s1 WHERE s1.id < s.id AND s.id > ANY (SELECT s1.id FROM needed) ORDER BY 1;
SELECT s.id FROM near AS s WHERE EXISTS (SELECT 1 FROM far WHERE s.id < ANY (SELECT k FROM needed)) ORDER BY 1;
-- A column of FULL JOIN … USING is NULL if one side has a NULL, even if the other side cannot.
SELECT k, y, z FROM far FULL JOIN needed USING (k) ORDER BY k, y;
SELECT k, y, z FROM needed FULL JOIN far USING (k) ORDER BY k DESC, y;
SELECT coalesce(k, 0), max(k) OVER (ORDER BY k) FROM needed FULL JOIN far USING (k) ORDER BY k;
SELECT * FROM far NATURAL FULL JOIN needed ORDER BY k, y;
-- Equal keys of these types have several forms.
CREATE TABLE spans (k interval PRIMARY KEY, n integer);
CREATE TABLE documents (k jsonb PRIMARY KEY, n integer);
-- refused
INSERT INTO spans VALUES ('1 day', 1), ('24:00:00', 2) ON CONFLICT (k) DO UPDATE SET n = excluded.n;
-- refused
INSERT INTO documents VALUES ('1', 1), ('1.0', 2) ON CONFLICT (k) DO UPDATE SET n = excluded.n;
INSERT INTO spans VALUES ('1 month', 1), ('30 days', 2) ON CONFLICT (k) DO NOTHING;
INSERT INTO spans VALUES ('720:00:00', 3) ON CONFLICT (k) DO UPDATE SET n = excluded.n RETURNING n;
-- A type must be known where a parameter is tested for NULL.
-- args: ["a"]
-- fails
SELECT id FROM near WHERE $1 IS NULL OR x = $1;
-- args: ["a"]
-- fails
SELECT $1 IS NOT NULL;
-- args: ["a"]
SELECT id FROM near WHERE x = $1 OR $1 IS NULL;
-- args: [1]
-- fails
SELECT $1 AS z FROM near GROUP BY id HAVING count(*) = $1;
-- An aggregate or a window on the left of ANY.
-- refused
SELECT count(*) > ANY (ARRAY[1]) FROM near;
-- refused
SELECT x FROM near GROUP BY x HAVING sum(i) > ALL (SELECT 5);
-- refused
SELECT row_number() OVER (ORDER BY id) > ANY (ARRAY[1]) FROM near;
SELECT count(*) = ANY (ARRAY[1, 3]), max(i) IN (SELECT i FROM near) FROM near;
SELECT (ARRAY[1, 2])[NULL], (ARRAY[1, 2])[i] FROM near ORDER BY id;
-- fails
SELECT n.id FROM near AS n RIGHT JOIN unnest(ARRAY[n.id]) AS q ON true;
-- fails
SELECT n.id FROM near AS n FULL JOIN unnest(ARRAY[n.id]) AS q ON n.id = q;
SELECT n.id, q FROM near AS n RIGHT JOIN unnest(ARRAY[1, 5]) AS q ON n.id = q ORDER BY q;
-- Constraints by name, distinct values in a list, indexes on expressions.
CREATE TABLE u (id bigserial PRIMARY KEY, a integer, b text, n integer DEFAULT 0, UNIQUE (a, b), CONSTRAINT only_b UNIQUE (b), CONSTRAINT small CHECK (n < 100));
INSERT INTO u (a, b) VALUES (1, 'x'), (2, 'y');
INSERT INTO u (a, b) VALUES (9, 'x') ON CONFLICT ON CONSTRAINT only_b DO UPDATE SET a = excluded.a, n = u.n + 1 RETURNING a, b, n;
INSERT INTO u (a, b) VALUES (9, 'x'), (9, 'x') ON CONFLICT ON CONSTRAINT u_a_b_key DO NOTHING;
INSERT INTO u (a, b) VALUES (9, 'x') ON CONFLICT ON CONSTRAINT u_pkey DO NOTHING;
INSERT INTO u (a, b) VALUES (9, 'x') ON CONFLICT ON CONSTRAINT small DO NOTHING;
INSERT INTO u (a, b) VALUES (9, 'x') ON CONFLICT ON CONSTRAINT nope DO NOTHING;
ALTER TABLE u RENAME CONSTRAINT only_b TO just_b;
INSERT INTO u (a, b) VALUES (7, 'x') ON CONFLICT ON CONSTRAINT just_b DO NOTHING RETURNING id;
INSERT INTO u (a, b) VALUES (7, 'x') ON CONFLICT ON CONSTRAINT only_b DO NOTHING RETURNING id;
SELECT array_agg(DISTINCT a), array_agg(DISTINCT b), string_agg(DISTINCT b, ',') FROM u;
SELECT b, array_agg(DISTINCT a) FILTER (WHERE a > 1) FROM u GROUP BY b ORDER BY b;
-- refused
SELECT u.a, a, count(*) FROM u GROUP BY ROLLUP (u.a, a);
SELECT a IS NOT DISTINCT FROM NULL, NULL IS DISTINCT FROM 'a' FROM u ORDER BY id;
-- refused
SELECT interval '1 decade', interval '1-2', interval '1-2' year to month;
CREATE INDEX ON u ((n + 1));
CREATE INDEX ON u ((b || 'x'));
CREATE INDEX ON u (coalesce(b, ''));
CREATE INDEX ON u (abs(a));
CREATE TABLE jj (j jsonb, s text);
CREATE INDEX ON jj ((j ->> 'name'));
CREATE INDEX ON jj ((s::integer));
-- refused
CREATE INDEX ON jj (date_trunc('day', now()));
CREATE UNIQUE INDEX ON jj (lower(s));
INSERT INTO jj (s) VALUES ('A'), ('a') ON CONFLICT (lower(s)) DO NOTHING RETURNING s;
INSERT INTO u (a, b, n) VALUES (2147483647, 'big', 5);
CREATE INDEX ON u ((a + 1));
CREATE INDEX ON u ((a * 2), b);
INSERT INTO jj VALUES ('{"name": "x", "d": {"e": "f"}}'), ('[]'), (NULL);
CREATE UNIQUE INDEX ON jj ((j -> 'd' ->> 'e'));
CREATE INDEX ON jj ((j #>> '{d,e}'));
CREATE INDEX ON jj ((j -> 'd'));
INSERT INTO jj VALUES ('{"d": {"e": "f"}}');
SELECT s FROM jj WHERE j ->> 'name' = 'x';
SELECT b FROM u WHERE n + 1 = 1 ORDER BY id;
-- refused
CREATE INDEX ON u ((now() + interval '1 day'));
INSERT INTO u (n, b) VALUES (2147483647, 'c');
-- Values of any type do not say which type a parameter has.
-- args: ["a"]
SELECT jsonb_build_array($1);
-- args: ["a"]
SELECT concat($1, 'x');
-- args: ["a"]
SELECT count($1);
-- args: ["a"]
SELECT $1 IS NOT DISTINCT FROM NULL;
-- args: ["a"]
SELECT jsonb_agg($1);
-- args: ["a"]
SELECT num_nulls($1);
-- args: [1, 2, 3]
SELECT $1 BETWEEN SYMMETRIC $2::integer AND $3;
SELECT make_interval(0, -2147483648)::text;
SELECT '{1}'::bigint[] NOT IN (NULL::integer[], '{1}'::bigint[]);
SELECT '{1}'::bigint[] IN ('{2}', '{1}'::bigint[]);
