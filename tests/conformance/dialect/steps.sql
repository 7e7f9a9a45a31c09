-- WITH queries that change data: every part sees the state before the statement.
CREATE TABLE job (id bigint PRIMARY KEY, state text NOT NULL, n integer DEFAULT 0, cost numeric(8,2), at timestamptz, raw bytea, f double precision, tags text[], doc jsonb, span interval, u uuid, UNIQUE (state, n));
CREATE TABLE done (id bigint PRIMARY KEY, state text, n bigint, cost numeric, at timestamptz, raw bytea, f double precision, tags text[], doc jsonb, span interval, u uuid);
CREATE TABLE customer (id bigint PRIMARY KEY, name text);
CREATE TABLE sale (id bigserial PRIMARY KEY, customer bigint NOT NULL REFERENCES customer ON DELETE CASCADE, amount numeric);
CREATE TABLE line (id integer PRIMARY KEY, sale bigint REFERENCES sale ON DELETE SET NULL, up integer REFERENCES line);
CREATE TABLE plain (a integer, b integer);
INSERT INTO job VALUES (1, 'new', 1, 1.5, '2030-01-01', '\x00ff', 0.1, '{a,NULL}', '{"k": [1, 2.50]}', '1 day', '11111111-1111-1111-1111-111111111111'), (2, 'new', 2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL), (3, 'old', 3, 2, NULL, '\x', 1e300, '{}', 'null', '2 months', NULL), (4, 'new', 4, 2, NULL, '\x', -2.5, '{}', '"s"', '2 months', NULL);
INSERT INTO customer VALUES (1, 'Ann'), (2, 'Bob');
INSERT INTO plain VALUES (1, 1), (2, 2);
-- Move rows, every type.
WITH gone AS (DELETE FROM job WHERE id = 1 RETURNING *) INSERT INTO done SELECT * FROM gone;
WITH gone AS (DELETE FROM job WHERE id = 3 RETURNING *) INSERT INTO done SELECT * FROM gone RETURNING *;
SELECT * FROM done ORDER BY id;
SELECT * FROM job ORDER BY id;
-- args: ["old", 2]
WITH changed (key, total) AS (UPDATE job SET state = $1 WHERE id = $2 RETURNING id, n + 1) SELECT key, total, total * 2 FROM changed;
-- args: [4, "x"]
WITH changed AS (UPDATE job SET n = n + 1 WHERE id = $1 RETURNING n) SELECT n, $2 AS word FROM changed;
WITH batch AS (SELECT id FROM job WHERE state = 'new' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED), taken AS (UPDATE job SET state = 'run' FROM batch WHERE job.id = batch.id RETURNING job.id, job.state) SELECT * FROM taken;
WITH before AS (SELECT count(*) AS n FROM job), gone AS (DELETE FROM job WHERE id = 2 RETURNING id) SELECT before.n, gone.id FROM before, gone;
WITH gone AS (DELETE FROM job WHERE id = 4 RETURNING id), before AS (SELECT count(*) AS n FROM job) SELECT n, (SELECT count(*) FROM gone) FROM before;
SELECT count(*) FROM job;
-- Without RETURNING, and not read.
WITH added AS (INSERT INTO job (id, state) VALUES (10, 'a'), (11, 'b')) SELECT 1 AS one;
WITH added AS (INSERT INTO job (id, state, n) VALUES (12, 'a', 9)) UPDATE done SET n = n + 1 RETURNING id, n;
WITH added AS (INSERT INTO job (id, state) VALUES (13, 'c')) SELECT * FROM added;
WITH a AS (INSERT INTO job (id, state, n) VALUES (14, 'd', 1) RETURNING id), b AS (INSERT INTO done (id) SELECT id FROM a RETURNING id) SELECT a.id, b.id FROM a JOIN b ON a.id = b.id;
WITH a AS (INSERT INTO plain VALUES (5, 5) RETURNING a), b AS (SELECT a + 1 AS next FROM a), c AS (INSERT INTO done (id) SELECT next FROM b RETURNING id) DELETE FROM job WHERE id IN (SELECT id - 1 FROM c) RETURNING id;
WITH RECURSIVE c (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 3), a AS (INSERT INTO plain SELECT i, i FROM c RETURNING a) SELECT sum(a) FROM a;
WITH a AS (INSERT INTO plain VALUES (7, 7) RETURNING a, b) SELECT x.a FROM a AS x UNION ALL SELECT b + 1 FROM a ORDER BY 1;
-- The upsert of old.
WITH found AS (UPDATE customer SET name = 'Eve' WHERE id = 1 RETURNING id) INSERT INTO customer SELECT 1, 'Eve' WHERE NOT EXISTS (SELECT 1 FROM found);
WITH found AS (UPDATE customer SET name = 'Eve' WHERE id = 3 RETURNING id) INSERT INTO customer SELECT 3, 'Eve' WHERE NOT EXISTS (SELECT 1 FROM found);
SELECT * FROM customer ORDER BY id;
-- References.
WITH c AS (INSERT INTO customer VALUES (4, 'New') RETURNING id) INSERT INTO sale (customer, amount) SELECT id, 5.5 FROM c RETURNING customer, amount;
WITH c AS (INSERT INTO customer VALUES (4, 'New') RETURNING id) INSERT INTO sale (customer, amount) SELECT id, 5.5 FROM c;
WITH s AS (DELETE FROM sale WHERE customer = 4 RETURNING customer) DELETE FROM customer USING s WHERE customer.id = s.customer RETURNING id;
SELECT customer FROM sale ORDER BY id;
WITH u AS (UPDATE customer SET name = 'X' WHERE id = 2 RETURNING id) INSERT INTO sale (customer, amount) SELECT id, 1 FROM u RETURNING customer;
WITH s AS (SELECT count(*) AS n FROM sale), d AS (DELETE FROM customer WHERE id = 2 RETURNING id) SELECT d.id, s.n FROM d, s;
SELECT count(*) FROM sale;
-- A part that fails takes the others back.
WITH a AS (INSERT INTO plain VALUES (100, 100) RETURNING a) INSERT INTO done (id) SELECT 14 FROM a;
WITH a AS (INSERT INTO plain VALUES (100, 100) RETURNING a) SELECT a / 0 FROM a;
WITH a AS (INSERT INTO plain VALUES (2147483647, 100) RETURNING a + 1 AS b) SELECT b FROM a;
SELECT count(*) FROM plain WHERE b = 100;
-- A query that has the name of its table.
WITH plain AS (UPDATE plain SET b = b + 1 WHERE a = 1 RETURNING *) SELECT * FROM plain ORDER BY a;
WITH plain AS (INSERT INTO plain VALUES (8, 8) RETURNING *) INSERT INTO done (id, n) SELECT a + 1000, b FROM plain RETURNING id;
-- What PostgreSQL refuses.
WITH x AS (DELETE FROM plain RETURNING a), x AS (SELECT 1) SELECT 1;
WITH x AS (SELECT 1), x AS (DELETE FROM plain RETURNING a) SELECT 1;
SELECT * FROM (WITH x AS (DELETE FROM plain RETURNING a) SELECT a FROM x) AS s;
INSERT INTO plain WITH x AS (DELETE FROM done RETURNING id) SELECT 1, 1 FROM x;
WITH x AS (INSERT INTO plain VALUES (1, 'a') RETURNING a) SELECT a FROM x;
WITH x (p, q) AS (INSERT INTO plain VALUES (1, 1) RETURNING a) SELECT p FROM x;
WITH x AS (DELETE FROM missing RETURNING a) SELECT a FROM x;
WITH x AS (DELETE FROM plain RETURNING a) SELECT b FROM x;
-- What depends on the order of the parts.
-- refused
WITH x AS (DELETE FROM plain RETURNING a) SELECT count(*) FROM plain;
-- refused
WITH x AS (UPDATE plain SET a = a + 1 RETURNING a) UPDATE plain SET b = 0;
-- refused
WITH x AS (DELETE FROM plain RETURNING a, b), y AS (SELECT x.a FROM x JOIN plain ON plain.a = x.a) SELECT a FROM y;
-- refused
WITH x AS (DELETE FROM job RETURNING id) INSERT INTO job (id, state) SELECT id, 'again' FROM x;
-- refused
WITH x AS (UPDATE job SET id = id + 100 RETURNING id) INSERT INTO job (id, state) SELECT id, 'again' FROM x;
-- refused
WITH x AS (DELETE FROM customer WHERE id = 1 RETURNING id) SELECT count(*) FROM sale;
-- refused
WITH x AS (DELETE FROM customer WHERE id = 1 RETURNING id) DELETE FROM sale;
-- refused
WITH x AS (DELETE FROM customer WHERE id = 1 RETURNING id) SELECT count(*) FROM line;
-- refused
WITH x AS (INSERT INTO sale (customer) VALUES (50) RETURNING id) INSERT INTO customer VALUES (50, 'late');
-- refused
WITH x AS (INSERT INTO sale (customer) VALUES (1) RETURNING id) INSERT INTO sale (customer) VALUES (1);
CREATE VIEW shown AS SELECT a FROM plain;
CREATE VIEW counted AS SELECT count(*) AS n FROM shown;
-- refused
WITH before AS (SELECT n FROM counted), x AS (INSERT INTO plain VALUES (9, 9) RETURNING a) SELECT before.n, x.a FROM before, x;
-- refused
WITH x AS (DELETE FROM plain RETURNING a) SELECT n FROM counted;
SELECT * FROM plain ORDER BY a, b;
-- References of references.
CREATE TABLE hop1 (id integer PRIMARY KEY);
CREATE TABLE hop2 (id integer PRIMARY KEY REFERENCES hop1 ON UPDATE CASCADE);
CREATE TABLE hop3 (id integer REFERENCES hop2 ON UPDATE CASCADE, n integer);
INSERT INTO hop1 VALUES (1);
INSERT INTO hop2 VALUES (1);
INSERT INTO hop3 VALUES (1, 1);
-- refused
WITH u AS (UPDATE hop1 SET id = 2 RETURNING id) SELECT u.id, hop3.id FROM u, hop3;
CREATE TABLE null1 (id integer PRIMARY KEY);
CREATE TABLE null2 (id integer UNIQUE REFERENCES null1 ON DELETE SET NULL);
CREATE TABLE null3 (id integer REFERENCES null2 (id) ON UPDATE CASCADE);
INSERT INTO null1 VALUES (1);
INSERT INTO null2 VALUES (1);
INSERT INTO null3 VALUES (1);
-- refused
WITH d AS (DELETE FROM null1 RETURNING id) SELECT d.id, null3.id FROM d, null3;
CREATE TABLE part1 (id integer PRIMARY KEY);
CREATE TABLE part2 (id integer PRIMARY KEY, up integer REFERENCES part1 ON DELETE CASCADE);
CREATE TABLE part3 (id integer PRIMARY KEY, up integer REFERENCES part2);
INSERT INTO part1 VALUES (1);
INSERT INTO part2 VALUES (1, 1);
INSERT INTO part3 VALUES (1, 1);
-- refused
WITH d AS (DELETE FROM part1 RETURNING id) DELETE FROM part3 RETURNING id;
WITH d AS (DELETE FROM part3 RETURNING id) DELETE FROM part1 RETURNING id;
SELECT count(*) FROM part2;
-- Parts that share a sequence.
CREATE SEQUENCE shared;
CREATE TABLE shared1 (a integer, b bigint DEFAULT nextval('shared'));
CREATE TABLE shared2 (a integer, b bigint DEFAULT nextval('shared'));
-- refused
WITH x AS (INSERT INTO shared1 (a) VALUES (1) RETURNING b) INSERT INTO shared2 (a) VALUES (1) RETURNING b;
-- refused
WITH x AS (INSERT INTO shared1 (a) VALUES (1) RETURNING b) SELECT nextval('shared'), b FROM x;
WITH x AS (INSERT INTO shared1 (a) VALUES (1) RETURNING a) SELECT a FROM x;
WITH x AS (UPDATE shared1 SET a = 2 RETURNING a) INSERT INTO shared2 (a) SELECT a FROM x RETURNING a;
-- refused
WITH json_each AS (INSERT INTO shared1 VALUES (1, 1) RETURNING a) SELECT a FROM json_each;
