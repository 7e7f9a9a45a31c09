-- Whole numbers of another size, under conditions and references; and references between sizes.
CREATE TABLE size (
  id integer PRIMARY KEY, n integer NOT NULL CHECK (n >= 0), low integer, high bigint, word text, f double precision,
  CONSTRAINT ordered CHECK (low < high AND (low IN (1, 2, -3) OR word <> '' OR NOT (high = 5)) AND low IS DISTINCT FROM 9)
);
CREATE INDEX some ON size (word) WHERE n > 3 AND low IS NOT NULL;
INSERT INTO size VALUES (1, 5, 1, 2, 'a', 1), (2, 6, NULL, 2, 'b', 1);
ALTER TABLE size ALTER COLUMN n TYPE bigint;
UPDATE size SET n = 3000000000 WHERE id = 1 RETURNING n;
UPDATE size SET n = -1 WHERE id = 1;
ALTER TABLE size ALTER COLUMN n TYPE integer;
UPDATE size SET n = 4 WHERE id = 1;
ALTER TABLE size ALTER COLUMN n TYPE smallint USING n + 1;
UPDATE size SET n = 40000 WHERE id = 1;
SELECT * FROM size ORDER BY id;
ALTER TABLE size ALTER COLUMN n DROP NOT NULL, ALTER COLUMN low TYPE bigint;
UPDATE size SET n = NULL, low = 3000000000 WHERE id = 1;
UPDATE size SET n = NULL, low = 3000000000, high = 3000000001 WHERE id = 1 RETURNING *;
INSERT INTO size VALUES (3, NULL, 9, 10, 'c', 1);
-- Text under a CHECK may lose its NOT NULL.
CREATE TABLE word (id integer PRIMARY KEY, text varchar(9) NOT NULL CHECK (text <> ''));
ALTER TABLE word ALTER COLUMN text DROP NOT NULL;
INSERT INTO word VALUES (1, NULL), (2, 'x');
INSERT INTO word VALUES (3, '');
-- What is computed depends on the size.
ALTER TABLE size ADD CONSTRAINT sum CHECK (n + 1 > 0), ADD CONSTRAINT floated CHECK (low > f);
-- refused
ALTER TABLE size ALTER COLUMN n TYPE bigint;
-- refused
ALTER TABLE size ALTER COLUMN low TYPE integer;
ALTER TABLE size DROP CONSTRAINT sum, DROP CONSTRAINT floated;
CREATE INDEX computed ON size ((n + 1)) WHERE n > 3;
-- refused
ALTER TABLE size ALTER COLUMN n TYPE bigint;
DROP INDEX computed;
ALTER TABLE size ADD COLUMN twice integer GENERATED ALWAYS AS (n * 2) STORED;
-- refused
ALTER TABLE size ALTER COLUMN n TYPE bigint;
-- refused
ALTER TABLE word ALTER COLUMN text TYPE integer USING 1;
-- References between whole numbers of every size, and between texts.
CREATE TABLE parent (id integer PRIMARY KEY, big bigint UNIQUE, name varchar(9) UNIQUE, x numeric UNIQUE);
CREATE TABLE child (id bigint PRIMARY KEY, up bigint REFERENCES parent ON UPDATE CASCADE, small smallint REFERENCES parent (big) ON UPDATE CASCADE, name text REFERENCES parent (name), near integer REFERENCES child);
INSERT INTO parent VALUES (1, 10, 'one', 1), (2, 20, 'two', 2);
INSERT INTO child VALUES (1, 1, 10, 'one', 1), (2, NULL, 20, 'two', 1);
INSERT INTO child VALUES (3, 3000000000, 10, 'one', 1);
INSERT INTO child VALUES (3, 1, 11, 'one', 1);
INSERT INTO child VALUES (3, 1, 10, 'ONE', 1);
INSERT INTO child VALUES (3, 1, 10, 'one', 7);
UPDATE parent SET big = 11 WHERE id = 1;
SELECT * FROM child ORDER BY id;
DELETE FROM parent WHERE id = 2;
ALTER TABLE parent ALTER COLUMN id TYPE bigint;
ALTER TABLE parent ALTER COLUMN big TYPE integer;
ALTER TABLE child ALTER COLUMN up TYPE integer, ALTER COLUMN near TYPE bigint, ALTER COLUMN small TYPE bigint;
UPDATE parent SET id = 7 WHERE id = 1;
INSERT INTO child VALUES (3, 99, 11, 'one', 1);
SELECT child.id, parent.id AS up FROM child JOIN parent ON parent.id = child.up ORDER BY child.id;
-- refused
ALTER TABLE child ALTER COLUMN up TYPE smallint USING 7;
-- refused
ALTER TABLE child ALTER COLUMN name TYPE varchar(20);
-- refused
CREATE TABLE other (id integer PRIMARY KEY, x integer REFERENCES parent (x));
