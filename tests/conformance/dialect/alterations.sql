-- Renaming tables and columns, and emptying a table.
CREATE TABLE parent (id bigint PRIMARY KEY, name varchar(5) NOT NULL, n integer DEFAULT 5 CHECK (n > 0), UNIQUE (name));
CREATE TABLE child (id bigint PRIMARY KEY, parent bigint REFERENCES parent ON DELETE CASCADE, x text, y integer, CHECK (y > id));
CREATE INDEX by_name ON parent (name) WHERE n > 1;
INSERT INTO parent VALUES (1, 'one', 1), (2, 'two', 2);
INSERT INTO child VALUES (1, 1, 'a', 5);
ALTER TABLE parent RENAME COLUMN name TO label;
SELECT label FROM parent ORDER BY id;
SELECT name FROM parent;
INSERT INTO parent (id, label) VALUES (3, 'one');
INSERT INTO parent (id, label) VALUES (3, 'far too long');
INSERT INTO parent (id, label) VALUES (3, 'three') RETURNING *;
ALTER TABLE parent RENAME n TO "Amount";
ALTER TABLE parent RENAME COLUMN n TO "Amount";
UPDATE parent SET "Amount" = 0;
UPDATE parent SET "Amount" = DEFAULT WHERE id = 1 RETURNING "Amount";
ALTER TABLE parent RENAME COLUMN id TO key;
INSERT INTO child VALUES (2, 99, 'b', 7);
INSERT INTO child VALUES (2, 2, 'b', 7);
ALTER TABLE parent RENAME TO ancestor;
SELECT key, label FROM ancestor ORDER BY key;
SELECT key FROM parent;
INSERT INTO child VALUES (3, 99, 'c', 7);
DELETE FROM ancestor WHERE key = 1;
SELECT id FROM child ORDER BY id;
ALTER TABLE child RENAME COLUMN y TO z;
INSERT INTO child VALUES (4, 2, 'c', 1);
ALTER TABLE child RENAME COLUMN nope TO y;
ALTER TABLE child RENAME COLUMN x TO z;
ALTER TABLE child RENAME TO ancestor;
ALTER TABLE nope RENAME TO other;
TRUNCATE ancestor;
TRUNCATE TABLE child;
SELECT count(*) FROM child;
TRUNCATE nope;
TRUNCATE TABLE child CONTINUE IDENTITY RESTRICT;
DROP TABLE child;
TRUNCATE ancestor;
SELECT count(*) FROM ancestor;
DROP INDEX by_name;
DROP TABLE ancestor;
CREATE TABLE tree (id bigserial PRIMARY KEY, up bigint REFERENCES tree);
-- refused
TRUNCATE tree;
-- refused
TRUNCATE tree RESTART IDENTITY;
ALTER TABLE tree RENAME COLUMN id TO number;
INSERT INTO tree (up) VALUES (NULL) RETURNING number;
-- refused
ALTER TABLE tree RENAME COLUMN up TO "UP";
-- refused
ALTER TABLE tree RENAME COLUMN up TO rowid;
-- refused
ALTER TABLE tree RENAME TO interlock_tree;
ALTER TABLE tree DROP COLUMN up;
INSERT INTO tree DEFAULT VALUES RETURNING *;
