-- EXCEPT ALL, INTERSECT ALL, and set operations on types with a collation; constants in ORDER BY and GROUP BY; HAVING alone.
CREATE TABLE one (n integer, p numeric, d interval, j jsonb, t text, a text[]);
CREATE TABLE two (n integer, p numeric, d interval, j jsonb, t text, a text[]);
INSERT INTO one VALUES (1, 1.5, '1 day', '{"a": 1}', 'x', '{a}'), (1, 2.5, '1 day', '[1]', 'y', '{a,b}'), (1, 1.5, '2 days', '1', 'x', '{a}'), (2, NULL, NULL, NULL, NULL, NULL), (NULL, NULL, '1 hour', 'null', '', '{}'), (NULL, 3, NULL, NULL, 'X', NULL);
INSERT INTO two VALUES (1, 1.5, '1 day', '{"a": 1}', 'x', '{a}'), (2, 2.0, '1 month', '[1, 2]', 'y', '{b}'), (2, 1.5, '5 days', '2', 'z', '{a}'), (NULL, NULL, NULL, NULL, NULL, NULL), (3, 7, '1 hour', '"s"', 'X', '{}');
SELECT n FROM one EXCEPT ALL SELECT n FROM two ORDER BY n;
SELECT n FROM one INTERSECT ALL SELECT n FROM two ORDER BY n;
SELECT n FROM two EXCEPT ALL SELECT n FROM one ORDER BY n;
SELECT p FROM one EXCEPT SELECT p FROM two ORDER BY p;
SELECT p FROM one INTERSECT SELECT p FROM two ORDER BY p;
SELECT p FROM one EXCEPT ALL SELECT p FROM two ORDER BY p;
SELECT p FROM one INTERSECT ALL SELECT p FROM two ORDER BY p NULLS FIRST;
SELECT p, t FROM one INTERSECT SELECT p, t FROM two ORDER BY 1, 2;
SELECT p, t FROM one EXCEPT ALL SELECT p, t FROM two ORDER BY t, p DESC;
SELECT j FROM one EXCEPT SELECT j FROM two ORDER BY j;
SELECT j FROM one INTERSECT ALL SELECT j FROM two ORDER BY j;
SELECT d FROM one EXCEPT SELECT d FROM two ORDER BY d;
SELECT d FROM one INTERSECT SELECT d FROM two ORDER BY d;
SELECT a FROM one INTERSECT SELECT a FROM two ORDER BY a;
SELECT a FROM one EXCEPT ALL SELECT a FROM two ORDER BY a;
SELECT t FROM one EXCEPT ALL SELECT t FROM two ORDER BY t;
SELECT n FROM one EXCEPT ALL SELECT p FROM two ORDER BY 1;
SELECT n FROM one EXCEPT ALL SELECT NULL ORDER BY 1;
SELECT 1 AS x, 'a' AS y EXCEPT ALL SELECT 2, 'a';
SELECT 'a' EXCEPT ALL SELECT 'b';
SELECT n FROM one UNION ALL SELECT n FROM two EXCEPT ALL SELECT n FROM one ORDER BY n;
SELECT n FROM one EXCEPT ALL (SELECT n FROM one EXCEPT ALL SELECT n FROM two) ORDER BY n;
SELECT n FROM one EXCEPT ALL SELECT n FROM two EXCEPT ALL SELECT 1 ORDER BY n;
SELECT p FROM one EXCEPT SELECT p FROM two UNION SELECT 1.5 INTERSECT SELECT 1.5 ORDER BY p;
SELECT p FROM one INTERSECT SELECT p FROM two INTERSECT SELECT p FROM one ORDER BY p;
(SELECT n FROM one ORDER BY n LIMIT 2) EXCEPT ALL (SELECT n FROM two ORDER BY n LIMIT 1) ORDER BY n;
SELECT n FROM one INTERSECT ALL SELECT n FROM two ORDER BY n LIMIT 1 OFFSET 1;
SELECT s.n, count(*) FROM (SELECT n FROM one EXCEPT ALL SELECT n FROM two) AS s GROUP BY s.n ORDER BY s.n;
SELECT n FROM one WHERE n IN (SELECT n FROM one EXCEPT ALL SELECT n FROM two);
SELECT n FROM one WHERE EXISTS (SELECT one.p INTERSECT SELECT p FROM two) ORDER BY n;
WITH c (k) AS (SELECT p FROM one EXCEPT ALL SELECT p FROM two) SELECT k FROM c ORDER BY k;
SELECT * FROM (VALUES (1, 1.50), (1, 1.50)) AS v EXCEPT ALL VALUES (1, 1.50);
VALUES (1), (1), (2) INTERSECT ALL VALUES (1), (1), (1) ORDER BY column1;
INSERT INTO two (n) SELECT n FROM one EXCEPT ALL SELECT n FROM two RETURNING n;
-- args: [1]
SELECT n FROM one EXCEPT ALL SELECT $1 ORDER BY n;
-- fails
SELECT n FROM one EXCEPT ALL SELECT n, p FROM two;
-- fails
SELECT n FROM one EXCEPT ALL SELECT t FROM two;
-- fails
SELECT j::json FROM one EXCEPT ALL SELECT j::json FROM two;
-- fails
SELECT n FROM one EXCEPT ALL SELECT n FROM two ORDER BY n + 1;
-- fails
SELECT n FROM one UNION SELECT n FROM two ORDER BY p;
SELECT n AS k FROM one UNION SELECT n FROM two ORDER BY k DESC NULLS LAST;
-- Constants in ORDER BY.
-- fails
SELECT n FROM one WHERE n = 2 ORDER BY NULL;
-- fails
SELECT n FROM one WHERE n = 2 ORDER BY true;
SELECT n FROM one WHERE n = 2 ORDER BY NULL::text;
SELECT n FROM one WHERE n = 2 ORDER BY 1 + 1;
SELECT n FROM one ORDER BY 'a'::text, n;
SELECT n FROM one ORDER BY n, 2::integer, NULL::text DESC;
-- args: [5]
SELECT n FROM one WHERE n = 2 ORDER BY $1::integer, n;
-- fails
SELECT n FROM one ORDER BY 'a';
-- fails
SELECT n FROM one ORDER BY 1.5;
-- fails
SELECT n FROM one ORDER BY 2;
-- fails
SELECT DISTINCT n FROM one ORDER BY 1 + 1;
-- fails
SELECT DISTINCT n FROM one ORDER BY true;
-- fails
SELECT n FROM one UNION SELECT 1 ORDER BY NULL;
-- fails
SELECT n FROM one UNION SELECT 1 ORDER BY true;
SELECT DISTINCT ON (t) t, n FROM one ORDER BY t, n, NULL::text;
SELECT count(*) FROM one ORDER BY NULL::integer;
SELECT t, count(*) FROM one GROUP BY t ORDER BY 1 + 1, t;
-- GROUP BY constants.
SELECT 'all' AS k, count(*) FROM one GROUP BY k;
SELECT 'all' AS k, count(*) FROM one WHERE n = 77 GROUP BY k;
SELECT 1 + 1 AS k, n, count(*) FROM one GROUP BY k, n ORDER BY n;
SELECT count(*) FROM one GROUP BY 1 + 1;
SELECT count(*) FROM one WHERE n > 5 GROUP BY 1 + 1;
SELECT NULL AS k, count(*) FROM one GROUP BY k;
SELECT true AS k, count(*) FROM one GROUP BY 1;
SELECT 5 AS k, n FROM one GROUP BY 1, 2 ORDER BY 2;
SELECT now() = now() AS k, count(*) FROM one GROUP BY 1;
-- args: ["x"]
SELECT $1::text AS k, count(*) FROM one GROUP BY 1;
-- fails
SELECT count(*) FROM one GROUP BY 'a';
-- fails
SELECT count(*) FROM one GROUP BY NULL;
-- fails
SELECT count(*) FROM one GROUP BY true;
-- fails
SELECT n FROM one GROUP BY 1 + 1;
-- fails
SELECT count(*) AS k FROM one GROUP BY k;
-- HAVING without GROUP BY.
SELECT 1 AS x FROM one HAVING count(*) > 1;
SELECT 'a' FROM one HAVING count(*) > 100;
SELECT 'a', 2 FROM one WHERE n = 77 HAVING count(*) = 0;
SELECT 1 HAVING true;
SELECT 1 HAVING false;
SELECT 1 FROM one HAVING NULL;
SELECT NULL FROM one HAVING max(n) = 2;
SELECT 1 FROM one HAVING count(*) > 1 ORDER BY count(*);
SELECT count(*) FROM one HAVING min(p) < 2;
SELECT 1 FROM one HAVING count(*) > 1 UNION ALL SELECT 2 FROM two HAVING count(*) > 1 ORDER BY 1;
SELECT EXISTS (SELECT 1 FROM one HAVING count(*) > 2), (SELECT 'y' FROM one HAVING count(*) > 2);
SELECT DISTINCT 1.50 FROM one HAVING true;
SELECT s.x + 1 FROM (SELECT 1 AS x FROM one HAVING count(*) > 1) AS s;
-- fails
SELECT n FROM one HAVING count(*) > 1;
-- fails
SELECT 1 FROM one HAVING n > 1;
-- fails
SELECT 1 FROM one HAVING count(*);
