-- FROM: commas, outer joins, USING and NATURAL, VALUES, series; and what may stand after it.
CREATE TABLE a (id integer PRIMARY KEY, x text, n integer);
CREATE TABLE b (id integer PRIMARY KEY, a integer, y text, n integer);
CREATE TABLE c (id bigint PRIMARY KEY, b integer, n integer, p numeric);
INSERT INTO a VALUES (1, 'one', 10), (2, 'two', 20), (3, NULL, NULL);
INSERT INTO b VALUES (1, 1, 'b1', 10), (2, 1, 'b2', 20), (3, 9, 'b3', 30), (4, NULL, NULL, NULL);
INSERT INTO c VALUES (1, 1, 10, 1.5), (2, 2, 50, 1.50), (3, 7, NULL, 2);
SELECT a.id, b.id FROM a, b ORDER BY a.id, b.id;
SELECT a.id, b.id FROM a, b WHERE b.a = a.id ORDER BY 1, 2;
SELECT a.id, b.id, c.id FROM a, b JOIN c ON c.b = b.id ORDER BY 1, 2, 3;
SELECT a.id, b.id, c.id FROM a, b LEFT JOIN c ON c.b = b.id WHERE a.id = 1 ORDER BY 1, 2, 3;
SELECT a.id, b.id, c.id FROM a LEFT JOIN b ON b.a = a.id, c WHERE c.id = 1 ORDER BY 1, 2;
SELECT a.id, b.id, c.id FROM b RIGHT JOIN a ON b.a = a.id, c WHERE c.id = 1 ORDER BY 1, 2;
SELECT a.id, c.id FROM a, b JOIN c ON c.b = a.id;
SELECT a.id FROM a JOIN b;
SELECT count(*) FROM a x, a y, a z;
SELECT a.id, b.id FROM a RIGHT JOIN b ON b.a = a.id ORDER BY b.id;
SELECT a.id, a.x, b.id FROM a RIGHT OUTER JOIN b ON b.a = a.id AND a.n > 5 WHERE b.id > 1 ORDER BY a.id NULLS FIRST, b.id;
SELECT a.id, b.id FROM a FULL JOIN b ON b.a = a.id ORDER BY a.id, b.id;
SELECT a.id, b.id FROM a FULL OUTER JOIN b ON a.id = b.a AND a.n = b.n ORDER BY a.id DESC, b.id DESC;
SELECT a.id, b.id, c.id FROM a FULL JOIN b ON b.a = a.id FULL JOIN c ON c.b = b.id ORDER BY 1, 2, 3;
SELECT a.id, b.id, c.id FROM a RIGHT JOIN b ON b.a = a.id LEFT JOIN c ON c.b = b.id ORDER BY 1, 2, 3;
SELECT a.id, b.id, c.id FROM a LEFT JOIN b ON b.a = a.id RIGHT JOIN c ON c.b = b.id ORDER BY 3;
SELECT count(*), count(a.id), count(b.id), sum(a.n), max(b.y) FROM a FULL JOIN b ON b.a = a.id;
SELECT a.x, count(b.id) FROM a RIGHT JOIN b ON b.a = a.id GROUP BY a.x ORDER BY a.x;
-- refused
SELECT a.id FROM a FULL JOIN b ON a.id < b.id;
SELECT * FROM a JOIN b USING (id) ORDER BY id;
SELECT id, x, y FROM a JOIN b USING (id) ORDER BY id;
SELECT id, a.id, b.id FROM a LEFT JOIN b USING (id) ORDER BY id;
SELECT id, x, y FROM a RIGHT JOIN b USING (id) ORDER BY id;
SELECT id, a.id, b.id FROM a FULL JOIN b USING (id) ORDER BY id;
SELECT * FROM a FULL JOIN b USING (id) ORDER BY id;
SELECT * FROM a FULL JOIN b USING (n, id) ORDER BY id, n;
SELECT id, count(*) FROM a FULL JOIN b USING (id) GROUP BY id ORDER BY id;
SELECT id FROM a FULL JOIN b USING (id) WHERE id > 2 ORDER BY id;
SELECT * FROM a NATURAL JOIN b ORDER BY id;
SELECT * FROM a NATURAL LEFT JOIN b ORDER BY id;
SELECT n FROM a JOIN b USING (id);
SELECT id FROM a JOIN b USING (id) JOIN a AS a2 USING (id) ORDER BY id;
SELECT * FROM a JOIN b USING (id) JOIN a AS a2 USING (id) ORDER BY id;
SELECT * FROM a JOIN b USING (id) JOIN c ON c.b = b.id ORDER BY id;
SELECT * FROM a JOIN b USING (nope);
SELECT a.* FROM a JOIN b USING (id) ORDER BY a.id;
SELECT b.*, a.x FROM a, b WHERE a.id = b.id ORDER BY b.id;
SELECT a.n FROM a JOIN b USING (id) WHERE a.n = b.n AND id = 1;
SELECT s.id, s.total FROM (SELECT a.id, count(*) AS total FROM a JOIN b ON b.a = a.id GROUP BY a.id) AS s (id, total);
SELECT s.k, s.x FROM (SELECT id, x FROM a) AS s (k) ORDER BY s.k;
SELECT s.k FROM (SELECT id FROM a) AS s (k, l);
-- A key in GROUP BY is enough for the columns of its table.
SELECT id, x, n FROM a GROUP BY id ORDER BY id;
SELECT a.*, count(b.id), sum(b.n) FROM a LEFT JOIN b ON b.a = a.id GROUP BY a.id ORDER BY a.id;
SELECT a.x, upper(a.x), max(b.n) FROM a LEFT JOIN b ON b.a = a.id GROUP BY a.id HAVING a.id < 3 ORDER BY a.n;
SELECT a.x, b.y FROM a JOIN b ON b.a = a.id GROUP BY a.id;
SELECT b.id, a.x FROM b LEFT JOIN a ON a.id = b.a GROUP BY b.id;
SELECT a.x, count(*) FROM b LEFT JOIN a ON a.id = b.a GROUP BY a.id ORDER BY a.id;
SELECT sum(n) FROM a HAVING sum(n) > 5;
SELECT sum(n) FROM a HAVING count(*) > 50;
SELECT 1 AS one FROM a HAVING count(*) > 1;
SELECT n FROM a HAVING count(*) > 1;
-- VALUES.
VALUES (1, 'a'), (2, 'b');
VALUES (1, 'a'), (2.5, NULL) ORDER BY column1 DESC;
VALUES (NULL), ('x') ORDER BY 1 LIMIT 1;
VALUES (1), (2), (3) LIMIT 2 OFFSET 1;
VALUES (1, 2), (3);
VALUES (1), ('a');
SELECT * FROM (VALUES (1, 'a'), (2, 'b')) AS v ORDER BY column1;
SELECT v.k, v.t FROM (VALUES (1, 'a'), (2, 'b'), (3, NULL)) AS v (k, t) ORDER BY v.k DESC;
SELECT v.k + 1, v.t || '!' FROM (VALUES (1, 'a'), (2, 'b')) AS v (k, t) ORDER BY 1;
SELECT a.id, v.factor * a.n FROM a JOIN (VALUES (1, 2), (2, 3)) AS v (id, factor) ON v.id = a.id ORDER BY a.id;
SELECT id FROM a WHERE id IN (VALUES (1), (3), (5)) ORDER BY id;
SELECT id FROM a WHERE x IN (VALUES ('one'), ('three'));
SELECT 1 IN (VALUES (2), (NULL)), 2 IN (VALUES (2), (NULL)), 1 NOT IN (VALUES (2));
SELECT (VALUES (5));
SELECT (VALUES (5), (6));
WITH v (k, t) AS (VALUES (1, 'a'), (2, 'b')) SELECT k, t FROM v ORDER BY k;
SELECT 1 AS k UNION ALL VALUES (2), (3) ORDER BY k;
-- args: [7, "seven"]
SELECT v.k FROM (VALUES ($1::bigint, $2::text), (8, 'eight')) AS v (k, t) ORDER BY v.k;
VALUES (1.10), (1.1), (2) ORDER BY 1 DESC;
INSERT INTO a (id, x) SELECT v.id, v.x FROM (VALUES (10, 'ten'), (11, 'eleven')) AS v (id, x) RETURNING id, x;
-- Series.
SELECT * FROM generate_series(1, 3);
SELECT generate_series FROM generate_series(1, 3) ORDER BY 1;
SELECT i FROM generate_series(1, 5, 2) AS i ORDER BY i;
SELECT g.i FROM generate_series(5, 1, -2) AS g (i) ORDER BY g.i DESC;
SELECT g FROM generate_series(5, 1) AS g;
SELECT g FROM generate_series(1, 1) AS g;
SELECT g FROM generate_series(1, 3, 0) AS g;
SELECT g + 1 FROM generate_series(1, 3000000000, 1000000000) AS g ORDER BY 1;
SELECT g FROM generate_series(9223372036854775806, 9223372036854775807) AS g ORDER BY g;
SELECT g FROM generate_series(2147483646, 2147483647) AS g ORDER BY g;
SELECT g FROM generate_series(-9223372036854775807, -9223372036854775808, -1) AS g ORDER BY g;
SELECT g FROM generate_series(NULL::integer, 3) AS g;
-- args: [3]
SELECT g FROM generate_series(1, $1) AS g ORDER BY g;
SELECT g, a.x FROM generate_series(1, 4) AS g LEFT JOIN a ON a.id = g ORDER BY g;
SELECT a.id, g FROM a, generate_series(1, 2) AS g WHERE a.id < 3 ORDER BY a.id, g;
SELECT count(*), sum(g) FROM generate_series(1, 1000) AS g;
SELECT g FROM generate_series(1, (SELECT max(n) FROM a WHERE id < 3) / 10) AS g ORDER BY g;
INSERT INTO a (id, n) SELECT g, g * g FROM generate_series(100, 102) AS g RETURNING id, n;
SELECT g FROM generate_series('1', 3) AS g;
SELECT (SELECT sum(g) FROM generate_series(1, a.id) AS g) FROM a WHERE id < 4 ORDER BY id;
-- DISTINCT ON.
SELECT DISTINCT ON (a) a, id, y FROM b ORDER BY a, id DESC;
SELECT DISTINCT ON (b.a) b.* FROM b ORDER BY b.a DESC, n;
SELECT DISTINCT ON (a, n) a, n FROM b ORDER BY n, a, id;
SELECT DISTINCT ON (1) a AS k, id FROM b ORDER BY k, id;
SELECT DISTINCT ON (k) a + 1 AS k, id FROM b ORDER BY k NULLS FIRST, id LIMIT 2;
SELECT DISTINCT ON (p) p, id FROM c ORDER BY p DESC, id;
SELECT DISTINCT ON (a.id) a.x, b.y FROM a LEFT JOIN b ON b.a = a.id ORDER BY a.id, b.id DESC;
SELECT s.id FROM (SELECT DISTINCT ON (a) id, a FROM b ORDER BY a, id) AS s WHERE s.a IS NOT NULL ORDER BY s.id;
SELECT DISTINCT ON (a) a FROM b ORDER BY id;
SELECT DISTINCT ON (a) count(*) FROM b GROUP BY a ORDER BY a;
-- refused
SELECT DISTINCT ON (a) a FROM b;
-- LIMIT and FETCH, locks.
SELECT id FROM a ORDER BY id LIMIT ALL;
SELECT id FROM a ORDER BY id LIMIT ALL OFFSET 1;
SELECT id FROM a ORDER BY id FETCH FIRST 2 ROWS ONLY;
SELECT id FROM a ORDER BY id OFFSET 1 ROW FETCH NEXT ROW ONLY;
SELECT id FROM a ORDER BY id FETCH FIRST 0 ROWS ONLY;
-- refused
SELECT id FROM a ORDER BY n FETCH FIRST 1 ROW WITH TIES;
SELECT id FROM a ORDER BY id FOR UPDATE;
SELECT id FROM a WHERE id = 1 FOR NO KEY UPDATE;
SELECT id FROM a ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED;
SELECT a.id FROM a JOIN b ON b.a = a.id ORDER BY b.id FOR SHARE OF a NOWAIT;
SELECT a.id FROM a WHERE id = 2 FOR KEY SHARE FOR UPDATE;
SELECT s.id FROM (SELECT id FROM a WHERE id < 3 FOR UPDATE) AS s ORDER BY s.id;
WITH s AS (SELECT id FROM a WHERE id < 3 FOR UPDATE) SELECT id FROM s ORDER BY id;
UPDATE a SET n = 0 WHERE id IN (SELECT id FROM a WHERE n IS NOT NULL ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id, n;
DELETE FROM a WHERE id = (SELECT id FROM a ORDER BY id DESC LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id;
SELECT count(*) FROM a FOR UPDATE;
SELECT n FROM a GROUP BY n FOR UPDATE;
SELECT DISTINCT n FROM a FOR UPDATE;
SELECT id FROM a FOR UPDATE OF b;
SELECT id FROM a UNION SELECT id FROM b FOR UPDATE;
SELECT row_number() OVER () FROM a FOR UPDATE;
-- refused
SELECT a.id FROM a LEFT JOIN b ON b.a = a.id FOR UPDATE;
TABLE c;
-- refused
SELECT a.id FROM a, b RIGHT JOIN c ON c.b = b.id;
-- refused
SELECT s.id FROM (a JOIN b ON b.a = a.id) AS s;
SELECT g.id FROM a, generate_series(1, a.id) AS g (id);
SELECT g FROM generate_series(1.0, 2.0) AS g;
SELECT generate_series(1, 3);
SELECT k FROM a AS t (k);
-- A comma beside USING: * lists the common columns of each part.
CREATE TABLE one_part (id bigint, x text, w integer);
CREATE TABLE other_part (id bigint, x text, y integer);
INSERT INTO one_part VALUES (1, 'a', 5), (2, 'b', 6);
INSERT INTO other_part VALUES (1, 'a', 7), (3, 'b', 8);
SELECT * FROM one_part AS o, one_part JOIN other_part USING (x) ORDER BY o.id, one_part.id;
SELECT * FROM one_part JOIN other_part USING (id), one_part AS o JOIN other_part AS p USING (id);
SELECT * FROM one_part AS o FULL JOIN other_part AS p USING (id), one_part AS q ORDER BY p.y, o.w, q.w;
SELECT * FROM one_part AS q, one_part AS o NATURAL LEFT JOIN other_part ORDER BY q.id, o.id;
SELECT o.id, x FROM one_part AS o, (SELECT 1 AS z) AS s JOIN (SELECT 1 AS z) AS t USING (z) ORDER BY x;
SELECT x FROM one_part AS o, one_part JOIN other_part USING (x);
SELECT id FROM one_part JOIN other_part USING (id), one_part AS o JOIN other_part AS p USING (id);
-- A join in parentheses on the right of a LEFT JOIN, as ORMs write a path over a table between.
SELECT a.id, b.id, c.id FROM a LEFT JOIN (b JOIN c ON c.b = b.id) ON b.a = a.id ORDER BY 1, 2, 3;
SELECT a.id, b.id, c.id FROM a LEFT JOIN (b LEFT JOIN c ON c.b = b.id AND c.n > 10) ON b.a = a.id ORDER BY 1, 2, 3;
SELECT a.id, count(c.id), max(b.y) FROM a LEFT JOIN (b JOIN c ON c.b = b.id) ON b.a = a.id GROUP BY a.id ORDER BY a.id;
SELECT a.id FROM a LEFT JOIN (b JOIN c ON c.b = b.id) ON b.a = a.id WHERE c.id IS NULL ORDER BY a.id;
SELECT a.id, d.id FROM a LEFT JOIN (b JOIN (c JOIN a AS d ON d.id = c.id) ON c.b = b.id) ON b.a = a.id ORDER BY 1, 2;
SELECT a.id FROM a LEFT JOIN (b JOIN c ON c.b = a.id) ON b.a = a.id;
-- refused
SELECT a.id FROM a RIGHT JOIN (b JOIN c ON c.b = b.id) ON b.a = a.id;
-- refused
SELECT a.id FROM a LEFT JOIN (b JOIN c USING (n)) ON b.a = a.id;
