-- GROUPING SETS, ROLLUP and CUBE.
CREATE TABLE s (id integer PRIMARY KEY, a text, b integer, c boolean, n numeric, u uuid, at timestamptz);
SELECT a, count(*) FROM s GROUP BY ROLLUP (a);
SELECT count(*) FROM s GROUP BY ();
SELECT a, b FROM s GROUP BY GROUPING SETS ((a), (b));
INSERT INTO s VALUES (1, 'x', 1, true, 1.5, '11111111-1111-1111-1111-111111111111', '2030-01-01'), (2, 'x', 2, false, 2.50, NULL, '2030-01-02'), (3, 'y', 1, true, 3, NULL, '2030-01-01'), (4, NULL, 2, NULL, 4, '11111111-1111-1111-1111-111111111111', NULL), (5, 'y', NULL, true, NULL, NULL, NULL);
SELECT a, count(*) FROM s GROUP BY ROLLUP (a) ORDER BY a, 2;
SELECT a, b, sum(n), count(*) FROM s GROUP BY ROLLUP (a, b) ORDER BY a, b, 4;
SELECT a, b, grouping(a) AS ga, grouping(a, b) AS gab, count(*) FROM s GROUP BY CUBE (a, b) ORDER BY gab, a, b;
SELECT a, b, c, u, at, count(*) FROM s GROUP BY GROUPING SETS ((a), (b), (c), (u), (at), ()) ORDER BY 1, 2, 3, 4, 5, 6;
SELECT a, b, count(*) FROM s GROUP BY a, ROLLUP (b) ORDER BY a, b, 3;
SELECT a, b, c, count(*) FROM s GROUP BY ROLLUP ((a, b), c) ORDER BY a, b, c, 4;
SELECT a, count(*) FROM s GROUP BY GROUPING SETS (ROLLUP (a), (b)) ORDER BY a, 2;
SELECT upper(a) AS big, b + 1 AS next, max(b), min(a) FROM s GROUP BY ROLLUP (a, b) ORDER BY big, next, 3, 4;
SELECT b % 2 AS odd, count(*) FROM s GROUP BY CUBE (b % 2) ORDER BY odd, 2;
SELECT a, sum(b) FROM s GROUP BY ROLLUP (1) ORDER BY 1, 2;
SELECT coalesce(a, 'all') AS label, sum(n) AS total FROM s WHERE b = 1 GROUP BY ROLLUP (a) ORDER BY total DESC, label LIMIT 2;
SELECT a, count(*) FROM s GROUP BY ROLLUP (a) HAVING count(*) > 1 AND grouping(a) = 0 ORDER BY a;
SELECT s.a, count(*) FROM s GROUP BY ROLLUP (s.a) ORDER BY s.a, 2;
SELECT t.a, t.k FROM (SELECT a, count(*) AS k FROM s GROUP BY ROLLUP (a)) AS t WHERE t.a IS NULL ORDER BY t.k;
SELECT a, grouping(a), count(*) FILTER (WHERE c) FROM s GROUP BY CUBE (a) ORDER BY a, grouping(a);
WITH w AS (SELECT a, b FROM s) SELECT a, sum(b) FROM w GROUP BY ROLLUP (a) ORDER BY a, 2;
SELECT 1 AS one FROM s GROUP BY ROLLUP (a);
SELECT 1 AS one FROM s GROUP BY GROUPING SETS ((), ());
SELECT b, c FROM s GROUP BY ROLLUP (b);
SELECT grouping(c) FROM s GROUP BY ROLLUP (b);
-- args: ["y"]
SELECT a, count(*) FROM s WHERE a = $1 GROUP BY ROLLUP (a) ORDER BY a;
-- refused
SELECT *, count(*) FROM s GROUP BY ROLLUP (a);
-- refused
SELECT a AS b2, b AS a, count(*) FROM s GROUP BY ROLLUP (a);
-- refused
SELECT s.a, count(*) FROM s GROUP BY ROLLUP (a);
-- refused
SELECT a, count(*) FROM s GROUP BY ROLLUP (a) ORDER BY count(*) + 1;
-- GROUP BY DISTINCT leaves out equal sets.
CREATE TABLE twice (a integer, b integer);
INSERT INTO twice VALUES (1, 1), (2, 2);
SELECT a, count(*) FROM twice GROUP BY DISTINCT ROLLUP (a), ROLLUP (a) ORDER BY a;
SELECT a, count(*) FROM twice GROUP BY ALL ROLLUP (a), ROLLUP (a) ORDER BY a;
SELECT a, b, count(*) FROM twice GROUP BY DISTINCT ROLLUP (a, b), CUBE (b, a) ORDER BY a, b;
SELECT a, count(*) FROM twice GROUP BY DISTINCT ROLLUP (1), ROLLUP (a) ORDER BY a;
-- refused
SELECT a, count(*) FROM twice GROUP BY DISTINCT ROLLUP (a), ROLLUP (twice.a);
