-- Rows compared with rows, and set operations of several kinds.
CREATE TABLE k (a integer, b text, p numeric, q numeric(6,2), n bigint, v varchar(5), ok boolean, PRIMARY KEY (a, b));
INSERT INTO k VALUES (1, 'a', 1.5, 1.50, 1, 'x', true), (1, 'b', 1.50, 2, NULL, 'y', false), (2, 'a', NULL, NULL, 3, NULL, NULL), (3, 'c', 10, 10, 4, 'z', true);
SELECT a, b FROM k WHERE (a, b) = (1, 'b');
SELECT (SELECT p FROM k WHERE (a, b) = (1, 'b')), (SELECT v FROM k WHERE (b, a) = ('z', 1));
SELECT (SELECT p FROM k WHERE (a, ok) = (1, true)), (SELECT p FROM k WHERE (a, a) = (1, 1));
SELECT a, b FROM k WHERE (a, b) > (1, 'a') ORDER BY a, b;
SELECT a, b FROM k WHERE (a, b) >= (1, 'b') ORDER BY a, b LIMIT 2;
SELECT a, b FROM k WHERE (a, b) < (2, 'a') ORDER BY a, b;
SELECT a, b FROM k WHERE (a, b) <> (1, 'a') ORDER BY a, b;
SELECT a, b FROM k WHERE NOT (a, b) <= (1, 'b') ORDER BY a, b;
-- args: [1, "a"]
SELECT a, b FROM k WHERE (a, b) > ($1, $2) ORDER BY a, b;
SELECT a, b, (p, a) = (1.5, 1), (p, a) < (1.500, 2), (p, n) > (1, 1), (n, p) <> (1, 1.50), (p, q) = (q, p) FROM k ORDER BY a, b;
SELECT (1, NULL) = (1, 2), (1, NULL) = (2, 2), (1, NULL) < (2, 2), (NULL, 1) < (1, 2), (1, 2) < (1, NULL), (1, 2) <> (NULL, 3), (1, 2) <> (NULL, 2);
SELECT a, b FROM k WHERE (a, b) IN ((1, 'a'), (3, 'c'), (9, 'z')) ORDER BY a, b;
SELECT a, b FROM k WHERE (a, b) NOT IN ((1, 'a'), (3, 'c')) ORDER BY a, b;
SELECT a, b FROM k WHERE (a, v) NOT IN ((1, 'x'), (3, NULL)) ORDER BY a, b;
SELECT a, b FROM k WHERE (a, p) IN ((1, 1.500), (3, 10.0)) ORDER BY a, b;
SELECT a, b FROM k WHERE (a, b) IN (SELECT a, b FROM k WHERE ok) ORDER BY a, b;
SELECT a, b FROM k WHERE (a, v) NOT IN (SELECT a, v FROM k WHERE a > 2) ORDER BY a, b;
SELECT a, b FROM k WHERE (a, v) NOT IN (SELECT a, v FROM k WHERE a = 2) ORDER BY a, b;
SELECT a, b FROM k WHERE (n, a) IN (VALUES (1, 1), (3, 2)) ORDER BY a, b;
UPDATE k SET ok = NULL WHERE (a, b) IN (SELECT a, b FROM k WHERE n > 2) RETURNING a, b, ok;
DELETE FROM k WHERE (a, b) = (2, 'a') RETURNING a, b;
SELECT a FROM k WHERE (a, b) = (1, 2, 3);
SELECT a FROM k WHERE (a, b) = (1, 2);
SELECT a FROM k WHERE (a, b) IN (SELECT a FROM k);
-- refused
SELECT a FROM k WHERE (a, b) IS DISTINCT FROM (1, 'a');
SELECT a FROM k WHERE (a, p) IN (SELECT a, p FROM k);
-- refused
SELECT ROW(a, b) FROM k;
SELECT 2 INTERSECT SELECT 2 UNION SELECT 1 ORDER BY 1;
SELECT 1 UNION SELECT 2 EXCEPT SELECT 1;
SELECT 1 EXCEPT SELECT 1 UNION SELECT 2;
SELECT 1 EXCEPT (SELECT 1 UNION SELECT 2);
SELECT 1 UNION ALL SELECT 1 EXCEPT SELECT 2;
SELECT 1 UNION SELECT 2 INTERSECT SELECT 3 UNION ALL SELECT 1 EXCEPT SELECT 5 ORDER BY 1;
SELECT 3 EXCEPT SELECT 2 INTERSECT SELECT 3 UNION ALL SELECT 3 INTERSECT SELECT 3;
SELECT 1 INTERSECT SELECT 1 EXCEPT SELECT 2 INTERSECT SELECT 2;
SELECT p FROM k UNION SELECT 2.25 ORDER BY 1;
SELECT 1.5 UNION SELECT 2 UNION SELECT 1.5 ORDER BY 1;
SELECT a, 2.5 AS x FROM k UNION SELECT n, 2.5 FROM k ORDER BY 1, 2;
SELECT 1.5, 1.5 UNION SELECT 1.5, 2.5 ORDER BY 1, 2;
SELECT s.p + 1 FROM (SELECT 1.5 AS p UNION SELECT 3.5) AS s ORDER BY 1;
SELECT 1.5 AS p UNION SELECT 2.5 EXCEPT SELECT 3 ORDER BY 1;
SELECT 7 AS p UNION ALL (SELECT 1.5 UNION SELECT 1.5) ORDER BY p;
SELECT p FROM k INTERSECT SELECT q FROM k;
SELECT v FROM k UNION SELECT v FROM k ORDER BY v;
SELECT q FROM k UNION ALL SELECT q FROM k ORDER BY q;
-- Upserts by a partial index.
CREATE TABLE part (id bigserial PRIMARY KEY, x text, ok boolean, n integer);
CREATE UNIQUE INDEX part_x ON part (x) WHERE ok;
INSERT INTO part (x, ok, n) VALUES ('a', true, 1), ('a', false, 2), ('b', true, 3);
INSERT INTO part (x, ok, n) VALUES ('a', true, 9) ON CONFLICT (x) WHERE ok DO UPDATE SET n = part.n + excluded.n RETURNING x, n;
INSERT INTO part (x, ok, n) VALUES ('a', false, 9) ON CONFLICT (x) WHERE ok DO UPDATE SET n = part.n + excluded.n RETURNING x, n;
INSERT INTO part (x, ok, n) VALUES ('b', true, 9), ('c', true, 1) ON CONFLICT (x) WHERE ok DO NOTHING RETURNING x, n;
INSERT INTO part (x, ok, n) VALUES ('b', true, 9) ON CONFLICT (x) DO NOTHING;
INSERT INTO part (x, ok, n) VALUES ('b', true, 9) ON CONFLICT (x) WHERE n > 1 DO NOTHING;
-- refused
INSERT INTO part (x, ok) VALUES ('a', true), ('b', true) ON CONFLICT (x) WHERE ok DO UPDATE SET n = 0;
