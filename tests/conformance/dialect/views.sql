-- Views.
CREATE TABLE item (id integer PRIMARY KEY, name varchar(20) NOT NULL, price numeric(8,2), active boolean);
CREATE TABLE sale (id bigserial PRIMARY KEY, item integer REFERENCES item, n integer);
INSERT INTO item VALUES (1, 'pen', 1.50, true), (2, 'ink', 12, false), (3, 'cap', NULL, true);
INSERT INTO sale (item, n) VALUES (1, 2), (1, 3), (2, 1);
CREATE VIEW cheap AS SELECT id, name, price FROM item WHERE price < 10;
SELECT * FROM cheap;
SELECT c.name, c.price * 2 FROM cheap AS c WHERE c.id = 1;
CREATE VIEW sold (item, total) AS SELECT item, sum(n) FROM sale GROUP BY item;
SELECT * FROM sold ORDER BY item;
SELECT i.name, s.total FROM item AS i LEFT JOIN sold AS s ON s.item = i.id ORDER BY i.id;
CREATE VIEW both_of AS SELECT i.*, s.total FROM item AS i JOIN sold AS s ON s.item = i.id;
SELECT * FROM both_of ORDER BY id;
SELECT count(*) FROM both_of AS b (x, y) WHERE x > 1;
SELECT (SELECT total FROM sold WHERE sold.item = item.id) AS t FROM item ORDER BY id;
UPDATE item SET price = s.total FROM sold AS s WHERE s.item = item.id RETURNING id, price;
DELETE FROM sale WHERE item IN (SELECT item FROM sold WHERE total < 2) RETURNING item;
INSERT INTO sale (item, n) SELECT id, 9 FROM both_of RETURNING item, n;
CREATE VIEW listed AS SELECT name FROM item ORDER BY name DESC LIMIT 2;
SELECT name FROM listed ORDER BY name;
CREATE VIEW constant AS SELECT 1 AS a, 'x' AS b, now() > '2020-01-01' AS c;
SELECT * FROM constant;
WITH cheap AS (SELECT 5 AS id) SELECT id FROM cheap;
-- A view sees its own tables, whatever WITH calls so.
-- refused
WITH item AS (SELECT 1 AS id) SELECT * FROM both_of, item;
CREATE OR REPLACE VIEW cheap AS SELECT id, name, price, active FROM item WHERE price < 20;
SELECT * FROM cheap ORDER BY id;
-- fails
CREATE OR REPLACE VIEW cheap AS SELECT id, name FROM item;
-- fails
CREATE OR REPLACE VIEW cheap AS SELECT id, name, 'text' AS price, active FROM item;
CREATE OR REPLACE VIEW fresh AS SELECT 1 AS a;
-- fails
CREATE VIEW cheap AS SELECT 1 AS a;
-- fails
CREATE TABLE cheap (a integer);
-- fails
CREATE VIEW item AS SELECT 1 AS a;
-- fails
CREATE VIEW wrong AS SELECT missing FROM item;
-- fails
CREATE VIEW wrong AS SELECT id, id FROM item;
-- fails
CREATE VIEW wrong (a, b) AS SELECT id FROM item;
-- fails
DROP TABLE sale;
-- fails
DROP VIEW sold;
-- fails
DROP VIEW item;
-- fails
DROP VIEW missing;
DROP VIEW IF EXISTS missing;
-- refused
ALTER TABLE item ADD COLUMN later integer;
SELECT * FROM cheap ORDER BY id;
SELECT * FROM both_of ORDER BY id;
-- refused
ALTER TABLE item DROP COLUMN active;
-- refused
ALTER TABLE item RENAME COLUMN active TO soon;
-- refused
ALTER TABLE item RENAME TO article;
-- refused
INSERT INTO cheap (id, name) VALUES (9, 'new');
-- refused
UPDATE cheap SET price = 1;
-- refused
DROP TABLE item CASCADE;
-- refused
CREATE TEMPORARY VIEW v AS SELECT 1 AS a;
-- refused
WITH d AS (DELETE FROM sale RETURNING id) SELECT count(*) FROM cheap, d;
DROP VIEW both_of, sold;
DROP VIEW cheap;
-- fails
SELECT * FROM cheap;
CREATE TABLE cheap (a integer);
-- A view stays the query that it was, whatever column its tables get.
CREATE TABLE va (id integer PRIMARY KEY, x integer);
CREATE TABLE vb (id integer PRIMARY KEY, y integer);
INSERT INTO va VALUES (1, 10);
INSERT INTO vb VALUES (1, 20);
CREATE VIEW correlated AS SELECT id, (SELECT x FROM vb WHERE vb.id = va.id) AS found FROM va;
CREATE VIEW joined AS SELECT x, y FROM va NATURAL JOIN vb;
CREATE VIEW aliased AS SELECT id, y AS z FROM vb WHERE y > 5 ORDER BY z;
CREATE VIEW counted AS SELECT id, x, count(*) AS n FROM va GROUP BY id;
-- refused
ALTER TABLE vb ADD COLUMN x integer;
-- refused
ALTER TABLE va ADD COLUMN y serial;
ALTER TABLE vb ADD COLUMN w integer;
ALTER TABLE vb ADD COLUMN s serial;
ALTER TABLE va ADD COLUMN q timestamptz DEFAULT now();
-- fails
ALTER TABLE va DROP CONSTRAINT va_pkey;
SELECT * FROM correlated;
SELECT * FROM joined;
SELECT * FROM aliased;
SELECT * FROM counted;
CREATE VIEW within AS SELECT id FROM va;
CREATE VIEW outside AS SELECT vb.id FROM vb NATURAL JOIN within;
CREATE OR REPLACE VIEW within AS SELECT id FROM va WHERE id > 0;
-- refused
CREATE OR REPLACE VIEW within AS SELECT id, 7 AS y FROM va;
-- refused
CREATE OR REPLACE VIEW within AS SELECT id FROM outside;
SELECT * FROM outside;
