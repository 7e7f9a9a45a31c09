-- Changes: INSERT, ON CONFLICT, UPDATE, DELETE, RETURNING.
CREATE TABLE c (id bigint PRIMARY KEY, n bigint NOT NULL DEFAULT 0, x text, UNIQUE (x));
INSERT INTO c (id, n) VALUES (1, 10), (2, 20), (3, 30);
INSERT INTO c (id, n) VALUES (1, 5) ON CONFLICT (id) DO NOTHING;
INSERT INTO c (id, n) VALUES (1, 5), (4, 40) ON CONFLICT (id) DO NOTHING RETURNING id;
INSERT INTO c (id, n) VALUES (1, 5) ON CONFLICT DO NOTHING;
INSERT INTO c (id, n) VALUES (1, 5) ON CONFLICT (id) DO UPDATE SET n = c.n + excluded.n RETURNING *;
INSERT INTO c (id, n) VALUES (9, 5) ON CONFLICT (id) DO UPDATE SET n = c.n + excluded.n RETURNING *;
INSERT INTO c AS k (id, n) VALUES (9, 5) ON CONFLICT (id) DO UPDATE SET n = k.n * 2, x = 'twice' WHERE k.n > 1 RETURNING k.n, x;
INSERT INTO c (id, n) VALUES (9, 5) ON CONFLICT (id) DO UPDATE SET n = 0 WHERE c.n > 1000 RETURNING n;
INSERT INTO c (id, n) VALUES (9, 5) ON CONFLICT (id) DO UPDATE SET n = n + 1;
INSERT INTO c (id, n) VALUES (9, 5) ON CONFLICT (n) DO NOTHING;
INSERT INTO c (id, x) VALUES (10, 'twice') ON CONFLICT (id) DO NOTHING;
INSERT INTO c (id, x) VALUES (10, 'twice') ON CONFLICT (x) DO UPDATE SET n = -1 RETURNING id, n;
INSERT INTO c (id, n) VALUES (1, 9223372036854775807) ON CONFLICT (id) DO UPDATE SET n = c.n + excluded.n;
-- args: [1, 7]
INSERT INTO c (id, n) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET n = c.n + $2 RETURNING n;
INSERT INTO c (id, n, x) SELECT id + 100, n, 'copy' || id::text FROM c WHERE id <= 2 ORDER BY id RETURNING id, n, x;
INSERT INTO c (id, n) SELECT id, 0 FROM c ON CONFLICT (id) DO NOTHING;
INSERT INTO c (id, n) SELECT id, 0 FROM c WHERE id < 3 ON CONFLICT (id) DO NOTHING RETURNING id;
INSERT INTO c SELECT 200, 1, 'two hundred';
INSERT INTO c (id, x) SELECT 201, NULL;
INSERT INTO c (id, n) SELECT '202', '3' RETURNING *;
-- args: [203, "p"]
INSERT INTO c (id, x) SELECT $1, $2 RETURNING *;
INSERT INTO c (id, n) SELECT max(id) + 1, count(*) FROM c RETURNING *;
INSERT INTO c (id, n) WITH w AS (SELECT 300 AS a) SELECT a, a FROM w RETURNING *;
INSERT INTO c (id, n) SELECT 400, 1 UNION ALL SELECT 401, 2;
INSERT INTO c (id, n) VALUES ((SELECT max(id) FROM c) + 1, (SELECT count(*) FROM c)), ((SELECT max(id) FROM c) + 2, (SELECT count(*) FROM c)) RETURNING *;
INSERT INTO c (id, n) SELECT 1, 2, 3;
INSERT INTO c (id, n) SELECT 'x', 2;
INSERT INTO c (id, n) SELECT x, n FROM c;
SELECT * FROM c ORDER BY id;
UPDATE c SET n = n + 1;
UPDATE c SET n = n + 1 WHERE id = 1 RETURNING n;
UPDATE c SET n = n + 1, x = 'new' WHERE id = 1 AND n > 0 RETURNING *;
UPDATE c AS k SET n = k.n - 1 WHERE k.id = 1 RETURNING k.id, k.n AS after, n * 2, x || '!';
UPDATE c k SET n = n WHERE k.id = 1 RETURNING k.*;
UPDATE c SET n = 0 WHERE id = 999;
UPDATE c SET n = 0 WHERE id = 999 RETURNING n;
UPDATE c SET x = n::text WHERE id = 2 RETURNING x;
UPDATE c SET n = -n, id = id WHERE id = 2 RETURNING n;
UPDATE c SET n = CASE WHEN n > 0 THEN n ELSE 0 END WHERE id IN (SELECT id FROM c WHERE n < 100) RETURNING id, n;
UPDATE c SET n = n / 0 WHERE id = 1;
UPDATE c SET n = n / (n - n) WHERE id = 1;
UPDATE c SET x = NULL WHERE x = 'copy1' RETURNING id;
-- args: [5, 1]
UPDATE c SET n = n + $1 WHERE id = $2 AND n >= $1 RETURNING n;
-- args: [9223372036854775807, 3]
UPDATE c SET n = n + $1 WHERE id = $2;
-- args: [-9223372036854775808, 3]
UPDATE c SET n = n - $1 WHERE id = $2;
DELETE FROM c WHERE id > 100 RETURNING id;
DELETE FROM c AS k WHERE k.id = 9 RETURNING k.id, k.n + 1;
DELETE FROM c WHERE id IN (SELECT id FROM c WHERE n = 20);
DELETE FROM c WHERE n = (SELECT max(n) FROM c) RETURNING *;
SELECT id, n, x FROM c ORDER BY id;
DELETE FROM c;
SELECT count(*) FROM c;
INSERT INTO nope VALUES (1);
UPDATE nope SET n = 1;
DELETE FROM nope;
DELETE FROM c WHERE nope = 1;
-- A statement does not see its own changes.
CREATE TABLE own (id integer PRIMARY KEY, n integer, x text);
INSERT INTO own VALUES (1, 1, 'a'), (2, 2, 'b'), (3, 3, 'c'), (4, 3, 'd');
UPDATE own SET n = n + 1 WHERE n = (SELECT max(o.n) FROM own AS o WHERE o.id <> own.id);
SELECT * FROM own ORDER BY id;
UPDATE own SET n = n + 1 WHERE NOT EXISTS (SELECT 1 FROM own AS o WHERE o.n > own.n);
SELECT * FROM own ORDER BY id;
UPDATE own SET n = n * 10 WHERE id IN (SELECT o.id + 1 FROM own AS o WHERE o.n < 10) RETURNING id, n;
DELETE FROM own WHERE n >= (SELECT avg(o.n) FROM own AS o) RETURNING id;
DELETE FROM own WHERE EXISTS (SELECT 1 FROM own AS o WHERE o.id < own.id) RETURNING id;
INSERT INTO own SELECT id + 10, n, x FROM own;
INSERT INTO own (id, n) SELECT o.id + 100, (SELECT count(*) FROM own) FROM own AS o ORDER BY o.id RETURNING id, n;
UPDATE own SET id = id + 1000;
UPDATE own SET n = 5, x = n::text RETURNING n, x;
UPDATE own SET n = id, x = x || n::text RETURNING id, n, x;
SELECT * FROM own ORDER BY id;
-- Rows that are sorted by another column than those that are converted, as SQLAlchemy inserts several.
CREATE TABLE short (id bigserial PRIMARY KEY, name varchar(5), n numeric(6, 2));
INSERT INTO short (name, n) SELECT p0::varchar, p1::numeric FROM (VALUES ('b', '1.005', 1), ('a', '2', 0)) AS v (p0, p1, place) ORDER BY place RETURNING id, name, n;
INSERT INTO short (name, n) SELECT p0::varchar, 1 FROM (VALUES ('much too long', 0)) AS v (p0, place) ORDER BY place;
INSERT INTO short (name) SELECT p0::varchar FROM (VALUES ('b'), ('a')) AS v (p0) ORDER BY 1;
INSERT INTO short (name) SELECT p0::varchar FROM (VALUES ('b', 2), ('a', 1)) AS v (p0, place) ORDER BY place LIMIT 1;
SELECT name, n FROM short ORDER BY name, n;
