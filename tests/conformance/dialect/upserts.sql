-- INSERT … ON CONFLICT with many rows: each key once.
CREATE TABLE u (id bigint PRIMARY KEY, n integer DEFAULT 3, x text, p numeric(8,2), UNIQUE (x));
CREATE TABLE pair (a integer, b text, n integer, PRIMARY KEY (a, b));
CREATE TABLE money (p numeric(10,2) PRIMARY KEY, n integer);
CREATE TABLE numbered (id bigserial PRIMARY KEY, k text UNIQUE, n integer DEFAULT 1);
INSERT INTO u (id, n, x) VALUES (1, 10, 'a'), (2, 20, 'b');
INSERT INTO u (id, n) VALUES (1, 5), (3, 30), (2, 7) ON CONFLICT (id) DO UPDATE SET n = u.n + excluded.n RETURNING id, n;
INSERT INTO u (id, n) VALUES (1, 5), (1, 6) ON CONFLICT (id) DO UPDATE SET n = excluded.n;
INSERT INTO u (id, n) VALUES (8, 5), (9, 6), (8, 7) ON CONFLICT (id) DO UPDATE SET n = excluded.n;
SELECT id, n, x FROM u ORDER BY id;
INSERT INTO u (id, n) VALUES (1, 5), (1, 6) ON CONFLICT (id) DO NOTHING;
INSERT INTO u (id, n) VALUES (8, 5), (8, 6) ON CONFLICT (id) DO NOTHING RETURNING id, n;
INSERT INTO u (id, n) VALUES (8, 5), (10, 6), (10, 7) ON CONFLICT DO NOTHING RETURNING id, n;
INSERT INTO u (id, x) VALUES (20, 'a'), (21, 'c') ON CONFLICT (x) DO UPDATE SET n = -1 RETURNING id, n, x;
INSERT INTO u (id, x) VALUES (30, NULL), (31, NULL) ON CONFLICT (x) DO UPDATE SET n = -1 RETURNING id, n, x;
INSERT INTO u (id, x) VALUES (40, 'a'), (40, 'zz') ON CONFLICT (x) DO UPDATE SET n = 0;
INSERT INTO u (id, n) VALUES (1, 100), (2, 200) ON CONFLICT (id) DO UPDATE SET n = excluded.n WHERE u.n < 16 RETURNING id, n;
INSERT INTO u (id, n) VALUES (1, DEFAULT), (2, 4) ON CONFLICT (id) DO UPDATE SET n = excluded.n RETURNING id, n;
INSERT INTO u (id, n) VALUES (1, 2147483647), (2, 4) ON CONFLICT (id) DO UPDATE SET n = u.n + excluded.n;
INSERT INTO u (id, n) SELECT id, 1 FROM u WHERE id < 3 ON CONFLICT (id) DO UPDATE SET n = u.n + excluded.n RETURNING id, n;
INSERT INTO u (id, n) SELECT g, g FROM generate_series(1, 3) AS g ON CONFLICT (id) DO UPDATE SET n = excluded.n * 100 RETURNING id, n;
INSERT INTO u (id, n) SELECT g % 2, g FROM generate_series(50, 53) AS g ON CONFLICT (id) DO UPDATE SET n = excluded.n;
INSERT INTO u (id, n) SELECT 1, 77 ON CONFLICT (id) DO UPDATE SET n = excluded.n RETURNING n;
INSERT INTO u (id, n) SELECT id, sum(n) FROM (VALUES (1, 5), (1, 6), (60, 7)) AS v (id, n) GROUP BY id ORDER BY id ON CONFLICT (id) DO UPDATE SET n = u.n + excluded.n RETURNING id, n;
INSERT INTO u (id, n) SELECT 1, 5 UNION ALL SELECT 61, 6 ON CONFLICT (id) DO UPDATE SET n = excluded.n RETURNING id, n;
WITH v (id, n) AS (VALUES (1::bigint, 8), (62, 9)) INSERT INTO u (id, n) SELECT id, n FROM v ON CONFLICT (id) DO UPDATE SET (n, x) = (excluded.n, 'set') RETURNING id, n, x;
-- args: [1, 5, 2, 6]
INSERT INTO u (id, n) VALUES ($1, $2), ($3, $4) ON CONFLICT (id) DO UPDATE SET n = u.n + excluded.n RETURNING id, n;
-- args: [7, 5, 7, 6]
INSERT INTO u (id, n) VALUES ($1, $2), ($3, $4) ON CONFLICT (id) DO UPDATE SET n = u.n + excluded.n RETURNING id, n;
INSERT INTO u (id, n) VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET n = DEFAULT RETURNING n;
INSERT INTO u AS t (id, n) VALUES (1, 1), (2, 2) ON CONFLICT (id) DO UPDATE SET n = t.n + 1000 RETURNING t.id, t.n;
INSERT INTO u VALUES (1, 2, 'w', 1.5), (70, 3, 'v', 2.5) ON CONFLICT (id) DO UPDATE SET x = excluded.x, p = excluded.p * 2 RETURNING *;
INSERT INTO u (x, id) VALUES ('first', 80), ('second', 81) ON CONFLICT (id) DO UPDATE SET n = 0 RETURNING id, n, x;
INSERT INTO pair VALUES (1, 'a', 1), (1, 'b', 2), (2, 'a', 3);
INSERT INTO pair VALUES (1, 'a', 10), (2, 'a', 30), (3, 'c', 40) ON CONFLICT (a, b) DO UPDATE SET n = pair.n + excluded.n RETURNING *;
INSERT INTO pair VALUES (1, 'a', 10), (1, 'a', 30) ON CONFLICT (a, b) DO UPDATE SET n = pair.n + excluded.n;
INSERT INTO pair VALUES (1, 'a', 10), (1, 'b', 30) ON CONFLICT (b, a) DO UPDATE SET n = 0 RETURNING *;
INSERT INTO money VALUES (1.50, 1);
INSERT INTO money VALUES (1.5, 2), (2, 3) ON CONFLICT (p) DO UPDATE SET n = excluded.n RETURNING *;
INSERT INTO money VALUES (7.5, 2), (7.50, 3) ON CONFLICT (p) DO UPDATE SET n = excluded.n;
INSERT INTO money VALUES (8.001, 2), (8.004, 3) ON CONFLICT (p) DO UPDATE SET n = excluded.n;
INSERT INTO numbered (k, n) VALUES ('a', 1), ('b', 2), ('c', 3) ON CONFLICT (k) DO UPDATE SET n = numbered.n + excluded.n RETURNING id, k, n;
INSERT INTO numbered (k, n) VALUES ('b', 5) ON CONFLICT (k) DO UPDATE SET n = numbered.n + excluded.n RETURNING id, k, n;
INSERT INTO numbered DEFAULT VALUES RETURNING n;
SELECT * FROM u ORDER BY id;
SELECT * FROM pair ORDER BY a, b;
SELECT * FROM money ORDER BY p;
-- Refused when it runs: whether the second row fails depends on what became of the first.
-- refused
INSERT INTO u (id, n) VALUES (1, 5), (1, 6) ON CONFLICT (id) DO UPDATE SET n = excluded.n WHERE u.n > 1000000;
-- refused
INSERT INTO u (id, n) VALUES (1, 5), (2, 6) ON CONFLICT (id) DO UPDATE SET id = excluded.id + 500;
-- refused
INSERT INTO u (id, n) VALUES (1, 5), (2, 6) ON CONFLICT (x) DO UPDATE SET n = 1;
-- refused
INSERT INTO u (id, n) VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET n = (SELECT 1);
INSERT INTO u (id) VALUES (DEFAULT), (DEFAULT);
INSERT INTO numbered (id, k) VALUES (DEFAULT, 'x'), (7, 'y');
-- A condition that implies that of the index.
CREATE TABLE implied (id integer PRIMARY KEY, k integer, n integer);
CREATE UNIQUE INDEX implied_k ON implied (k) WHERE n > 0;
INSERT INTO implied VALUES (1, 1, 5);
INSERT INTO implied VALUES (2, 1, 5) ON CONFLICT (k) WHERE n > 0 DO NOTHING;
-- refused
INSERT INTO implied VALUES (2, 1, 5) ON CONFLICT (k) WHERE n > 3 DO NOTHING;
INSERT INTO implied VALUES (2, 1, 5) ON CONFLICT (id) WHERE n > 3 DO NOTHING;
-- fails
INSERT INTO implied VALUES (3, 9, 5) ON CONFLICT (n) WHERE n > 3 DO NOTHING;
SELECT id FROM implied ORDER BY id;
-- The target may be an expression of a unique index.
CREATE TABLE reader (id integer PRIMARY KEY, email text, name text, born date);
CREATE UNIQUE INDEX ON reader (lower(email));
CREATE UNIQUE INDEX reader_name ON reader (name, lower(email));
INSERT INTO reader VALUES (1, 'Ann@x', 'Ann'), (2, 'bob@x', 'Bob');
INSERT INTO reader VALUES (3, 'ANN@X', 'again') ON CONFLICT (lower(email)) DO NOTHING;
INSERT INTO reader VALUES (4, 'BOB@x', 'again'), (5, 'eve@x', 'Eve') ON CONFLICT (lower(email)) DO NOTHING RETURNING id;
INSERT INTO reader VALUES (6, 'ANN@x', 'Anna') ON CONFLICT (lower(email)) DO UPDATE SET name = excluded.name, email = excluded.email RETURNING *;
-- args: [7, "EVE@X", "Eva"]
INSERT INTO reader AS r (id, email, name) VALUES ($1, $2, $3) ON CONFLICT (lower(email)) DO UPDATE SET name = r.name || excluded.name WHERE r.id > 1 RETURNING *;
INSERT INTO reader VALUES (8, 'Eve@x', 'EveEva') ON CONFLICT (name, lower(email)) DO NOTHING;
-- fails
INSERT INTO reader VALUES (8, 'Eve@x', 'other') ON CONFLICT (name, lower(email)) DO NOTHING;
-- fails
INSERT INTO reader VALUES (9, 'x', 'y') ON CONFLICT (upper(email)) DO NOTHING;
-- fails
INSERT INTO reader VALUES (9, 'x', 'y') ON CONFLICT (lower(nothing)) DO NOTHING;
-- fails
-- args: ["x"]
INSERT INTO reader VALUES (9, 'x', 'y') ON CONFLICT ((email || $1)) DO NOTHING;
-- fails
INSERT INTO reader VALUES (9, 'x', 'y') ON CONFLICT ((SELECT 1)) DO NOTHING;
-- refused
INSERT INTO reader VALUES (10, 'p', 'p'), (11, 'q', 'q') ON CONFLICT (lower(email)) DO UPDATE SET name = excluded.name;
-- refused
INSERT INTO reader VALUES (10, 'p', 'p') ON CONFLICT (lower(email)) WHERE id > 0 DO NOTHING;
SELECT * FROM reader ORDER BY id;
