-- PostgreSQL cannot parse these. Each must fail on a lane, too, and change nothing: the last query shows the rows.
CREATE TABLE m (id bigint PRIMARY KEY, n integer DEFAULT 7, x text, a integer[]);
INSERT INTO m VALUES (1, 1, 'a', '{1,2}'), (2, 2, 'b', '{3}'), (3, 3, 'c', '{}');
-- Empty places in lists.
INSERT INTO m (id, n, x) VALUES (4, , 'd');
INSERT INTO m (id, n, x) VALUES (, 4, 4, 'd');
INSERT INTO m (id, n, x) VALUES (4, 4, 'd', );
INSERT INTO m (id, , n) VALUES (4, 4);
INSERT INTO m (id) VALUES (4), , (5);
INSERT INTO m (id) VALUES (4) (5);
INSERT INTO m (id) SELECT 4, FROM m;
UPDATE m SET n = 0, WHERE id = 1;
UPDATE m SET , n = 0 WHERE id = 1;
UPDATE m SET (n, , x) = (0, 'z');
DELETE FROM m WHERE id IN (1,,2);
DELETE FROM m WHERE id IN (1, 2, );
DELETE FROM m WHERE id IN (, 1);
DELETE FROM m WHERE id = ANY (ARRAY[1, , 2]);
DELETE FROM m WHERE id = 1 RETURNING id, ;
SELECT id, , n FROM m;
SELECT , id FROM m;
SELECT id, FROM m;
SELECT id FROM m, WHERE id = 1;
SELECT id FROM m ORDER BY id, ;
SELECT coalesce(n, , 0) FROM m;
CREATE TABLE q (a integer, , b integer);
CREATE TABLE q (a integer, );
CREATE TABLE q, (a integer);
CREATE INDEX q ON m (n, );
-- Brackets without their other half.
DELETE FROM m WHERE (id = 1;
DELETE FROM m WHERE id = 1);
DELETE FROM m WHERE id IN (1, 2;
INSERT INTO m (id) VALUES (4;
INSERT INTO m (id VALUES (4);
SELECT a[1 FROM m;
SELECT [1, 2];
SELECT extract(epoch FROM now(), extract(day FROM now());
-- Words that are missing.
DELETE FROM m WHERE id BETWEEN 1 2;
SELECT id FROM m WHERE id BETWEEN 1;
DELETE m WHERE id = 1;
INSERT m VALUES (4);
INSERT m (id) VALUES (4);
INSERT INTO m (id) VALUE (4);
SELECT CASE WHEN n = 1 'one' END FROM m;
WITH w (SELECT 1 AS n) SELECT n FROM w;
SELECT count(*) FILTER (n > 1) FROM m;
SELECT sum(n) OVER w FROM m WINDOW w (ORDER BY id);
SELECT sum(n) OVER (ORDER BY id ROWS 1 PRECEDING AND CURRENT ROW) FROM m;
CREATE INDEX q m (n);
CREATE TABLE q (a integer UNIQUE (a));
CREATE TABLE q (a integer FOREIGN KEY (a) REFERENCES m);
-- Clauses of other dialects, and clauses out of order.
INSERT INTO m SET id = 4;
INSERT INTO m SET id = 4, n = 5;
INSERT INTO m (id) DEFAULT VALUES;
INSERT INTO m DEFAULT VALUES FROM m;
INSERT INTO m FROM m VALUES (4);
INSERT INTO m AS (id) VALUES (4);
UPDATE m WHERE id = 1 SET n = 0;
UPDATE m SET n = 0 WHERE id = 1 FROM m AS o;
UPDATE m SET n = 0 RETURNING id WHERE id = 1;
DELETE FROM m RETURNING id WHERE id = 1;
FROM m;
SELECT id FROM (FROM m) AS s;
SELECT id FROM m LIMIT 1 BY;
SELECT id FROM m WHERE n NOT NULL;
DELETE FROM m WHERE id = integer 1;
ALTER TABLE m ADD ADD COLUMN z integer;
CREATE INDEX q ON m USING (n);
-- Names that are no names.
DELETE FROM 'm';
DELETE FROM m 'x' WHERE id = 1;
INSERT INTO 'm' VALUES (4);
INSERT INTO m ('id') VALUES (4);
UPDATE m SET 'n' = 0;
UPDATE 'm' SET n = 0;
CREATE TABLE 'q' (a integer);
CREATE TABLE q ('a' integer);
DROP TABLE 'm';
SELECT id FROM m AS 'x';
SELECT id AS 'x' FROM m;
SELECT id 'x' FROM m;
SELECT id AS 2 FROM m;
SELECT id AS FROM m;
SELECT AS id FROM m;
UPDATE . m SET n = 0;
SELECT array_append(a, 5)[1] FROM m;
SELECT ARRAY[1, 2][1];
SELECT * FROM m ORDER BY id;
-- The same beginnings, well-formed.
INSERT INTO m (id) (SELECT 4);
WITH w AS (SELECT 5 AS n) (SELECT n FROM w);
SELECT DISTINCT ON (n) (n), id FROM m ORDER BY n, id;
SELECT n IS NOT DISTINCT FROM 1, NOT n IN (1), n NOT IN (1), x NOT LIKE 'a', CASE WHEN n = 1 THEN CASE n WHEN 1 THEN 'x' END END FROM m ORDER BY id;
SELECT count(DISTINCT n), count(ALL n), .5, m.n AS "as" FROM m GROUP BY m.n ORDER BY m.n;
DELETE FROM m WHERE id = 4 RETURNING n, x;
UPDATE m SET n = 0 SET x = 'z';
SELECT 1 UNION ALL VALUES (2), (3) AS k;
CREATE TABLE q (a bigint REFERENCES m ());
CREATE INDEX 1 ON m (n);
SELECT false AND NULL NOT NULL;
-- A word too many.
DELETE FROM m SET WHERE id = 1;
UPDATE m SET SET SET n = 0;
INSERT INTO m * (id) VALUES (4);
TRUNCATE . m;
DELETE FROM m WHERE EXISTS (ALL SELECT 1 FROM m);
SELECT count(ALL *) FROM m;
CREATE TABLE q DEFAULT (a bigint);
CREATE TABLE q (a bigint DEFAULT NOT NULL DEFAULT 1);
CREATE TABLE q (a bigint DEFAULT 1 DEFAULT 2);
ALTER TABLE m ADD ADD k integer;
ALTER TABLE m ADD COLUMN ::integer;
SELECT * FROM m ORDER BY id;
WITH a AS (SELECT 1 AS n) (WITH b AS (SELECT n + 1 AS m FROM a) SELECT m FROM b);

-- The parser's library takes a parameter where PostgreSQL has a constant alone.
-- fails
-- args: [1]
SELECT integer $1;
-- fails
-- args: ["day"]
SELECT extract($1 FROM now());
