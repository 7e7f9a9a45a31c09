-- WITH: several, before changes, materialized or not, and recursive.
CREATE TABLE node (id integer PRIMARY KEY, parent integer, name text, cost numeric(8,2));
CREATE TABLE log (id integer PRIMARY KEY, note text, n bigint);
INSERT INTO node VALUES (1, NULL, 'root', 1.50), (2, 1, 'left', 2), (3, 1, 'right', 3.25), (4, 2, 'leaf', NULL), (5, 4, 'deep', 0.10), (6, 6, 'self', 1);
WITH a AS (SELECT id FROM node), b AS (SELECT id FROM a WHERE id > 2), c AS MATERIALIZED (SELECT max(id) AS m FROM b), d AS NOT MATERIALIZED (SELECT m + 1 AS k FROM c) SELECT k FROM d;
WITH a AS (SELECT id FROM node WHERE id < 3) SELECT x.id, y.id FROM a AS x, a AS y ORDER BY 1, 2;
WITH a (k, v) AS (SELECT id, name FROM node), b (k) AS MATERIALIZED (SELECT k FROM a WHERE v LIKE 'l%') SELECT a.v FROM a JOIN b ON a.k = b.k ORDER BY 1;
WITH a (k) AS (SELECT id, name FROM node) SELECT k, name FROM a ORDER BY k;
WITH a (k, v, w) AS (SELECT id, name FROM node) SELECT k FROM a;
WITH a AS (SELECT 1 AS n) SELECT (WITH b AS (SELECT n + 1 AS m FROM a) SELECT m FROM b);
SELECT s.n FROM (WITH a AS (SELECT 5 AS n) SELECT n FROM a) AS s;
WITH a AS (SELECT id FROM node ORDER BY id DESC LIMIT 2) SELECT id FROM a ORDER BY id;
WITH a AS (SELECT 9 AS id, 'nine' AS note) INSERT INTO log (id, note) SELECT id, note FROM a RETURNING id, note;
WITH a AS (SELECT max(id) AS m FROM log) INSERT INTO log (id, n) VALUES ((SELECT m FROM a) + 1, 5) RETURNING *;
WITH a AS (SELECT id, count(*) OVER () AS n FROM log) UPDATE log SET n = (SELECT a.n FROM a WHERE a.id = log.id), note = 'counted' WHERE id IN (SELECT id FROM a) RETURNING id, n, note;
WITH a AS (SELECT id FROM node WHERE id > 4) UPDATE node SET name = name || '!' FROM a WHERE a.id = node.id RETURNING node.id, node.name;
WITH a AS (SELECT max(id) AS m FROM log) DELETE FROM log WHERE id = (SELECT m FROM a) RETURNING id;
WITH a AS (SELECT id FROM log) DELETE FROM log USING a WHERE a.id = log.id AND a.id > 100;
WITH a AS (SELECT sum(n) AS total FROM log) UPDATE log SET n = (SELECT total FROM a) + id RETURNING id, n;
WITH a AS (SELECT 1 AS n) SELECT n FROM a UNION ALL SELECT n + 1 FROM a ORDER BY 1;
WITH a AS (SELECT nope FROM node) SELECT 1;
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5) SELECT i FROM n ORDER BY i;
WITH RECURSIVE n AS (SELECT 1 AS i, 1::bigint AS f UNION ALL SELECT i + 1, f * (i + 1) FROM n WHERE i < 10) SELECT i, f FROM n ORDER BY i;
WITH RECURSIVE tree AS (SELECT id, name, 0 AS depth FROM node WHERE parent IS NULL UNION ALL SELECT node.id, node.name, tree.depth + 1 FROM node JOIN tree ON node.parent = tree.id) SELECT id, name, depth FROM tree ORDER BY id;
WITH RECURSIVE tree (id, path) AS (SELECT id, name FROM node WHERE id = 1 UNION ALL SELECT node.id, tree.path || '/' || node.name FROM tree, node WHERE node.parent = tree.id) SELECT id, path FROM tree ORDER BY path;
WITH RECURSIVE up AS (SELECT id, parent FROM node WHERE id = 5 UNION SELECT node.id, node.parent FROM node JOIN up ON up.parent = node.id) SELECT id FROM up ORDER BY id;
WITH RECURSIVE around AS (SELECT id, parent FROM node WHERE id = 6 UNION SELECT node.id, node.parent FROM node JOIN around ON around.parent = node.id) SELECT id FROM around;
WITH RECURSIVE n (i) AS (SELECT 1 UNION SELECT (i * 3) % 7 FROM n) SELECT i FROM n ORDER BY i;
WITH RECURSIVE n (i) AS (VALUES (1), (10) UNION ALL SELECT i + 1 FROM n WHERE i % 5 <> 0) SELECT i FROM n ORDER BY i;
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n LIMIT 3;
WITH RECURSIVE n (i) AS (SELECT 2147483646 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n;
WITH RECURSIVE a AS (SELECT 1 AS i), b AS (SELECT i FROM a UNION ALL SELECT i + 1 FROM b WHERE i < 3), c AS (SELECT sum(i) AS s FROM b) SELECT s FROM c;
WITH RECURSIVE tree AS (SELECT id, cost FROM node WHERE parent IS NULL UNION ALL SELECT node.id, node.cost FROM node JOIN tree ON node.parent = tree.id) SELECT sum(cost), count(*) FROM tree;
WITH RECURSIVE n (i) AS (SELECT 10 UNION ALL SELECT i + 1 FROM n WHERE i < 12) INSERT INTO log (id, note) SELECT i, 'made' FROM n RETURNING id, note;
WITH RECURSIVE down AS (SELECT id FROM node WHERE id = 2 UNION ALL SELECT node.id FROM node JOIN down ON node.parent = down.id) UPDATE node SET cost = 9 WHERE id IN (SELECT id FROM down) RETURNING id, cost;
WITH RECURSIVE down AS (SELECT id FROM node WHERE id = 2 UNION ALL SELECT node.id FROM node JOIN down ON node.parent = down.id) DELETE FROM node USING down WHERE down.id = node.id RETURNING node.id;
WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1.5 FROM n WHERE i < 3) SELECT i FROM n;
WITH RECURSIVE n AS (SELECT i FROM n UNION ALL SELECT 1 AS i) SELECT i FROM n;
WITH RECURSIVE n AS (SELECT i + 1 AS i FROM n) SELECT i FROM n;
WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT max(i) + 1 FROM n) SELECT i FROM n;
WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT a.i + 1 FROM n AS a JOIN n AS b ON true) SELECT i FROM n;
WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT 2 WHERE EXISTS (SELECT 1 FROM n WHERE i > 5)) SELECT i FROM n;
WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i, 2 FROM n) SELECT i FROM n;
SELECT count(*) FROM log;
-- refused
WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT DISTINCT i + 1 FROM n WHERE i < 3) SELECT i FROM n;
WITH gone AS (DELETE FROM log RETURNING id) SELECT id FROM gone;
WITH made AS (INSERT INTO log (id) VALUES (77) RETURNING id) SELECT id FROM made;
-- refused
WITH moved AS (UPDATE log SET n = 1 RETURNING id) DELETE FROM log WHERE id IN (SELECT id FROM moved);
WITH log AS (SELECT 1 AS a) SELECT a FROM log;
-- refused
WITH a AS (SELECT random() AS r) SELECT r FROM a;
-- A WITH query inside another one of its name. SQLite takes some uses of the inner one for the outer one, for ever.
-- refused
WITH a AS (WITH a AS (SELECT 1 AS n) SELECT 5 AS n UNION ALL SELECT n + 1 FROM a) SELECT n FROM a;
-- refused
WITH a AS (WITH a AS (SELECT 1 AS n) SELECT n FROM a) SELECT n FROM a;
-- refused
WITH "A" AS (SELECT n FROM (WITH a AS (SELECT 1 AS n) SELECT n FROM a) AS s) SELECT n FROM "A";
CREATE TABLE counted (id bigint);
-- refused
INSERT INTO counted WITH a AS (WITH a AS (SELECT 1 AS n) SELECT 5 AS n UNION ALL SELECT n + 1 FROM a) SELECT n FROM a;
-- A series whose column is not read.
SELECT count(*) FROM generate_series(1, 3);
INSERT INTO counted (id) SELECT 9 FROM generate_series(1, 3) RETURNING id;
INSERT INTO counted (id) SELECT count(*) FROM generate_series(1, (SELECT count(*) FROM counted)) RETURNING id;
SELECT count(*) FROM counted, generate_series(1, 2) AS n CROSS JOIN generate_series(1, 2) AS m;
