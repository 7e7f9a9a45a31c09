-- Words of windows and of WITH as names, and combinations that searching tried.
CREATE TABLE z (id integer PRIMARY KEY, range integer, groups integer, rows integer, "over" integer, partition integer, rank integer, lag text, first integer, recursive integer, materialized integer);
INSERT INTO z VALUES (1, 1, 1, 5, 1, 1, 3, 'a', 1, 1, 1), (2, 2, 1, 4, 2, 2, 2, 'b', 2, 2, 2), (3, 5, 2, 3, 3, 1, 1, NULL, 3, 3, 3);
SELECT range FROM z WHERE range BETWEEN 1 AND 2 ORDER BY range;
SELECT range, groups, rows, "over", partition, rank, lag, first, recursive, materialized FROM z ORDER BY id;
SELECT id, sum(range) OVER (ORDER BY range RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) FROM z ORDER BY id;
SELECT id, sum(rows) OVER (PARTITION BY partition ORDER BY rows ROWS 1 PRECEDING), sum(groups) OVER (ORDER BY groups GROUPS CURRENT ROW) FROM z ORDER BY id;
SELECT id, rank() OVER (ORDER BY rank), lag(lag) OVER (ORDER BY id), rank FROM z ORDER BY id;
SELECT id, count(*) OVER (ORDER BY range DESC RANGE 1 PRECEDING) AS range FROM z ORDER BY id;
SELECT id, sum(id) OVER (RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS rows FROM z ORDER BY id;
SELECT count(*) over FROM z;
-- refused
SELECT id AS "over", id AS range, id AS window FROM z WHERE id = 1;
SELECT x.id FROM z AS x, z AS y WHERE (x.range BETWEEN y.range AND y.rows) ORDER BY x.id, y.id;
WITH recursive (n) AS (SELECT 1) SELECT n FROM recursive;
WITH materialized AS (SELECT 1 AS n) SELECT n FROM materialized;
WITH rank (n) AS (SELECT 5) SELECT n FROM rank;
CREATE TABLE rank (id integer PRIMARY KEY, generate_series integer);
INSERT INTO rank (id) VALUES (1), (2) ON CONFLICT (id) DO UPDATE SET generate_series = excluded.id RETURNING *;
SELECT rank.id, generate_series FROM rank ORDER BY rank.id;
SELECT v.range, v.list FROM (VALUES (1, 2)) AS v (range, list);
-- refused
SELECT log.a FROM (SELECT 1 AS a) AS log (a);
SELECT count.a FROM (VALUES (1)) AS count (a);
-- Guards and joins in odd places.
SELECT id, (SELECT x.id FROM z AS x WHERE x.rows = z.groups + 2 OR x.id = z.id AND false) FROM z ORDER BY id;
SELECT id FROM z WHERE EXISTS (SELECT row_number() OVER () FROM z AS o WHERE o.id > z.id) ORDER BY id;
SELECT id FROM z WHERE id IN (SELECT rank() OVER (ORDER BY o.id) FROM z AS o WHERE o.id > 1) ORDER BY id;
SELECT (SELECT sum(s.r) FROM (SELECT row_number() OVER (ORDER BY o.id) AS r FROM z AS o WHERE o.id <= z.id) AS s) FROM z ORDER BY id;
-- refused
SELECT max((SELECT 1)) FROM z;
SELECT a.id, b.id FROM z AS a LEFT JOIN z AS b ON b.id = (SELECT max(c.id) FROM z AS c WHERE c.id < a.id) ORDER BY a.id;
SELECT a.id, b.id FROM z AS a LEFT JOIN z AS b ON b.id = (SELECT c.id FROM z AS c WHERE c.partition = a.partition) WHERE a.id = 2 ORDER BY a.id;
SELECT id, count(*) FROM z NATURAL JOIN (SELECT id, 1 AS one FROM z) AS s GROUP BY id ORDER BY id;
SELECT * FROM (SELECT id, range FROM z) AS a NATURAL FULL JOIN (SELECT id + 1 AS id, rows FROM z) AS b ORDER BY id;
SELECT id FROM (SELECT id FROM z) AS a JOIN (SELECT id FROM z) AS b USING (id) RIGHT JOIN (SELECT 2 AS k UNION ALL SELECT 9) AS c ON c.k = a.id ORDER BY id;
SELECT id, k FROM (SELECT id FROM z) AS a FULL JOIN (SELECT id FROM z WHERE id > 2) AS b USING (id) FULL JOIN (VALUES (3, 'k'), (8, 'l')) AS c (id, k) USING (id) ORDER BY id DESC;
SELECT id + 1, -id, id::text FROM z AS a FULL JOIN (SELECT 9 AS id) AS b USING (id) ORDER BY 1;
SELECT DISTINCT ON (partition) partition, id, sum(id) OVER (PARTITION BY partition) FROM z ORDER BY partition, id DESC OFFSET 1;
SELECT s.g, s.c FROM (SELECT DISTINCT ON (partition) partition AS g, count(*) OVER () AS c FROM z ORDER BY g, id) AS s ORDER BY s.g;
INSERT INTO rank (id, generate_series) SELECT DISTINCT ON (partition) id + 10, rows FROM z ORDER BY partition, id DESC RETURNING *;
INSERT INTO rank (id) SELECT row_number() OVER (ORDER BY id) + 100 FROM z RETURNING id;
INSERT INTO rank SELECT g, g FROM generate_series(200, 202) AS g EXCEPT SELECT 201, 201 RETURNING id;
INSERT INTO rank VALUES (1, (SELECT count(*) FROM rank)), (2, (SELECT max(id) FROM rank)) ON CONFLICT (id) DO UPDATE SET generate_series = excluded.generate_series RETURNING *;
UPDATE rank SET generate_series = s.r FROM (SELECT id, (SELECT count(*) FROM rank AS o WHERE o.generate_series < rank.generate_series) AS r FROM rank) AS s WHERE s.id = rank.id RETURNING rank.id, rank.generate_series;
UPDATE rank SET id = id + 1000, generate_series = (SELECT count(*) FROM rank AS o WHERE o.id > rank.id) RETURNING id, generate_series;
UPDATE rank SET generate_series = g FROM generate_series(1, 1) AS g WHERE rank.id = 1001 RETURNING rank.id, rank.generate_series;
DELETE FROM rank USING generate_series(1001, 1011) AS g WHERE g = id RETURNING id;
DELETE FROM rank WHERE id IN (SELECT s.id FROM (SELECT id, row_number() OVER (ORDER BY id DESC) AS r FROM rank) AS s WHERE s.r > 1);
SELECT * FROM rank ORDER BY id;
WITH RECURSIVE s (n, t) AS (SELECT 1, 'a' UNION ALL SELECT n + 1, t || 'b' FROM s WHERE n < 4), x AS (SELECT max(n) AS m FROM s) SELECT s.t, x.m FROM s, x ORDER BY s.n;
WITH RECURSIVE s (n) AS (SELECT 1::bigint UNION ALL SELECT s.n * 2 FROM s, z WHERE z.id = 1 AND s.n < 50) SELECT n FROM s ORDER BY n;
WITH RECURSIVE s (n) AS (SELECT NULL UNION SELECT 'x' FROM s) SELECT n FROM s ORDER BY n;
SELECT (WITH RECURSIVE s (n) AS (SELECT z.id UNION ALL SELECT n - 1 FROM s WHERE n > 1) SELECT count(*) FROM s) FROM z ORDER BY id;
SELECT id FROM z WHERE id = ANY (SELECT rows FROM z) ORDER BY id;
SELECT id FROM z ORDER BY (SELECT count(*) FROM z AS o WHERE o.rows < z.rows), id;
SELECT partition, count(*) FROM z GROUP BY partition HAVING count(*) = (SELECT max(s.c) FROM (SELECT count(*) AS c FROM z GROUP BY partition) AS s);
SELECT sum(CASE WHEN id IN (1, 2) THEN 1 ELSE 0 END) OVER (ORDER BY id), avg(range * 1.0) OVER (ORDER BY id ROWS 1 PRECEDING) FROM z ORDER BY id;
SELECT lag(id) OVER (ORDER BY id) IS NULL AS head, lead(id, 1, -1) OVER (ORDER BY id) AS following FROM z ORDER BY id;
SELECT a.id FROM z AS a, z AS b JOIN z AS c USING (id) WHERE b.id = a.id ORDER BY a.id;
SELECT id FROM z AS b JOIN z AS c USING (id), (SELECT 7 AS other) AS s ORDER BY id;
SELECT id FROM z AS b JOIN z AS c USING (id), z AS d;
SELECT 1 FOR UPDATE;
VALUES (1) FOR UPDATE;
SELECT id FROM z FOR UPDATE LIMIT 1;
-- refused
(SELECT id FROM z ORDER BY id LIMIT 1) FOR UPDATE;
SELECT id FROM z LIMIT 1 OFFSET 1 ROWS;
-- refused
SELECT id FROM z ORDER BY id FETCH FIRST (1 + 1) ROWS ONLY;
SELECT id FROM z ORDER BY id FETCH FIRST -1 ROWS ONLY;
-- args: [2]
SELECT id FROM z ORDER BY id FETCH FIRST $1 ROWS ONLY;
UPDATE z SET range = DEFAULT, id = DEFAULT WHERE id = 1;
-- refused
UPDATE z SET (range) = ROW(1);
UPDATE z SET (range, groups) = (SELECT range, NULL FROM z AS o WHERE o.id = 1);
-- refused
TABLE z ORDER BY id LIMIT 1;
-- Parentheses of set operations count where the order of evaluation does.
SELECT 1 EXCEPT (SELECT 1 EXCEPT SELECT 1);
SELECT id FROM z EXCEPT (SELECT id FROM z EXCEPT SELECT 2) ORDER BY 1;
SELECT 1 EXCEPT (SELECT 1 EXCEPT SELECT 1) EXCEPT SELECT 3;
(SELECT 1 EXCEPT SELECT 1) EXCEPT SELECT 1;
SELECT 1 WHERE 1 IN (SELECT 1 EXCEPT (SELECT 1 EXCEPT SELECT 1));
SELECT 1 EXCEPT (SELECT 1 EXCEPT (SELECT 1 EXCEPT SELECT 1));
SELECT 1 UNION ALL (SELECT 1 UNION SELECT 1);
SELECT 1 UNION (SELECT 1 UNION ALL SELECT 1);
SELECT 1 INTERSECT (SELECT 1 UNION SELECT 2);
(SELECT 1 UNION SELECT 2) INTERSECT SELECT 2;
SELECT 1 EXCEPT (SELECT 1 INTERSECT SELECT 2);
SELECT 1 EXCEPT (SELECT 1 UNION ALL SELECT 3) UNION ALL SELECT 4;
(SELECT DISTINCT ON (partition) partition, id FROM z ORDER BY partition, id DESC) UNION SELECT 9, id FROM z ORDER BY 1, 2;
SELECT 9, id FROM z UNION ALL (SELECT DISTINCT ON (partition) partition, id FROM z ORDER BY partition, id) ORDER BY 1, 2;
SELECT id FROM z EXCEPT (SELECT DISTINCT ON (id) id FROM z ORDER BY id LIMIT 1) ORDER BY 1;
