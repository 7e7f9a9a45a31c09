-- The types together: in queries, changes and aggregates, and where both engines must fail.
CREATE TABLE t (id integer PRIMARY KEY, d jsonb, tags text[], at timestamptz, x text, n bigint NOT NULL DEFAULT 0);
INSERT INTO t (id, d, tags, at, x) VALUES (1, '{"a": 1}', '{a}', '2030-01-01', 'a'), (2, NULL, NULL, NULL, NULL);
SELECT coalesce(d, '{}'), coalesce(tags, '{}'), coalesce(at, '2000-01-01'), CASE WHEN id = 1 THEN d ELSE '[]' END, CASE WHEN id = 2 THEN ARRAY['x'] ELSE tags END, nullif(x, 'a') FROM t ORDER BY id;
SELECT s.e FROM (SELECT at - '2029-01-01' AS e FROM t) AS s WHERE s.e IS NULL OR s.e > interval '1 day' LIMIT 0;
SELECT extract(epoch FROM s.e) FROM (SELECT at - '2029-01-01' AS e FROM t) AS s ORDER BY 1;
SELECT d FROM t UNION ALL SELECT '{}' ;
SELECT tags FROM t UNION ALL SELECT ARRAY['z'];
SELECT d FROM t UNION SELECT '{}';
INSERT INTO t (id, d, tags) SELECT id + 10, d || '{"z": 1}', tags || ARRAY['q'] FROM t ORDER BY id RETURNING id, d, tags;
INSERT INTO t (id, d) VALUES (1, '{"b": 2}') ON CONFLICT (id) DO UPDATE SET d = t.d || excluded.d, n = t.n + 1 RETURNING d, n;
WITH s AS (SELECT id, d -> 'a' AS a FROM t) SELECT s.a FROM s JOIN t ON t.id = s.id WHERE t.d @> jsonb_build_object('a', s.a) ORDER BY t.id;
SELECT id FROM t WHERE x = ANY (SELECT x FROM t) AND NOT id = ANY (SELECT id FROM t WHERE x IS NULL);
SELECT DISTINCT x, left(x, 1) FROM t ORDER BY left(x, 1), x;
SELECT left(x, 1), count(*), string_agg(x, ',' ORDER BY id) FROM t GROUP BY left(x, 1) ORDER BY 1;
SELECT date_trunc('day', at) AS day, count(*) FROM t GROUP BY 1 ORDER BY 1;
SELECT date_trunc('day', at) AS day, count(*) FROM t GROUP BY day HAVING count(*) > 0 ORDER BY day DESC;
SELECT x FROM t GROUP BY x HAVING bool_and(id > 0) ORDER BY max(at), x;
SELECT (SELECT jsonb_agg(o.id ORDER BY o.id) FROM t AS o WHERE o.id <= t.id) FROM t ORDER BY id;
SELECT id, (SELECT string_agg(o.x, ',' ORDER BY o.id) FROM t AS o WHERE o.id < t.id) FROM t ORDER BY id;
UPDATE t SET at = now() WHERE id = 1 AND at < now() - interval '1 year' RETURNING id;
DELETE FROM t WHERE tags @> '{q}' RETURNING id;
SELECT count(*) FILTER (WHERE d ? 'a') AS a, count(DISTINCT x) FILTER (WHERE id > 0) FROM t;
SELECT sum(n) FILTER (WHERE x = 'a') + 1, coalesce(sum(n) FILTER (WHERE x = 'nope'), 0) FROM t;
SELECT max(greatest(n, id)), min(length(x)), avg(extract(epoch FROM at)) FROM t;
SELECT id AS position, x AS trim, n AS substring FROM t ORDER BY id;
SELECT length(x) AS length, left(x, 1) AS "left" FROM t ORDER BY length;
SELECT 'a' || left('bcd', 2) || upper('x'), - length('abc'), length('abc') * -1, left('abc', length('ab'));
SELECT now()::timestamptz IS NOT NULL, (now() - interval '1 day') < now();
SELECT interval '1 day' > interval '1 hour' AS longer;
SELECT id FROM t WHERE at + interval '1 day' * n >= at - interval '1 day' ORDER BY id;
SELECT ARRAY[1, 2] = ARRAY[1, 2], ARRAY[1, NULL] = ARRAY[1, NULL], ARRAY['a'] <> '{b}', ARRAY[1.0] IS NULL;
SELECT x -> 'a' FROM t;
SELECT upper(5);
SELECT concat();
SELECT greatest();
SELECT nosuch(1);
SELECT date_trunc('day');
SELECT extract(epoch FROM x) FROM t;
SELECT extract(epoch FROM 5);
SELECT to_timestamp(x) FROM t;
SELECT 'a'::interval IS NULL;
SELECT at + x FROM t;
SELECT at > 'x' FROM t;
SELECT d ? 5 FROM t;
SELECT d @> 5 FROM t;
SELECT d || 5 FROM t;
SELECT d - true FROM t;
SELECT tags || 5 FROM t;
SELECT cardinality(d) FROM t;
SELECT tags[x] FROM t;
SELECT jsonb_set(d, 'a', '1') FROM t;
SELECT count(id) FILTER (WHERE count(*) > 1) FROM t;
SELECT sum(count(*)) FROM t;
SELECT lower(x ORDER BY x) FROM t;
SELECT lower(DISTINCT x) FROM t;
SELECT id FROM t WHERE bool_and(true);
SELECT x, jsonb_agg(id) FROM t;
-- Typed constants.
SELECT timestamptz '2030-01-01', jsonb '{"a": 1}', uuid '00000000-0000-0000-0000-000000000001', bigint '5', numeric '1.50', boolean 't', double precision '1.5', text 'x';
SELECT timestamptz '2030-01-01' + interval '1' day;
-- One parameter, several types: its first use in a clause decides, and the others are values of that type.
CREATE TABLE typed (id bigint PRIMARY KEY, i integer, price numeric, d double precision, x text);
INSERT INTO typed VALUES (1, 3, 1, 1.5, '1'), (2, 4, 2.5, 2, '2');
-- args: [1]
SELECT id FROM typed WHERE id = $1 OR price = $1 OR d > $1 ORDER BY id;
-- args: [Decimal("2.5")]
SELECT id FROM typed WHERE price = $1 OR id = $1 ORDER BY id;
-- args: [1.5]
SELECT id FROM typed WHERE d = $1 OR id = $1 ORDER BY id;
-- args: [3000000000]
SELECT id FROM typed WHERE id = $1 OR i < $1 ORDER BY id;
-- args: [3000000000]
SELECT id FROM typed WHERE i < $1 OR id = $1 ORDER BY id;
-- args: ["1"]
SELECT id FROM typed WHERE x = $1 OR id = $1;
-- args: [1]
SELECT id FROM typed WHERE id = $1 AND x = $1;
-- args: [1]
SELECT id FROM typed WHERE id BETWEEN $1 AND price + $1 ORDER BY id;
-- args: [1]
SELECT id FROM typed WHERE CASE WHEN id = $1 THEN price = $1 ELSE d > $1 END ORDER BY id;
-- args: [1]
SELECT id + $1, price + $1, i * $1, d - $1, $1::text, coalesce(price, $1) FROM typed ORDER BY id;
-- args: [1]
SELECT a.id FROM typed AS a JOIN typed AS b ON a.id = $1 AND b.price > $1 OR b.i = $1 ORDER BY 1;
-- args: [2]
DELETE FROM typed WHERE id = $1 AND price > $1 RETURNING id;
-- args: [1]
UPDATE typed SET x = 'one' WHERE id = $1 OR price = $1 RETURNING x;
-- args: [1]
INSERT INTO typed (id, i) VALUES ($1, $1);
-- args: [1]
UPDATE typed SET i = $1, price = $1;
SELECT price + $1 FROM typed WHERE id = $1;
SELECT id FROM typed WHERE $1 BETWEEN id AND price;
