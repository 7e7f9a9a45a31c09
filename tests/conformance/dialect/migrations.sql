-- Definitions as migration tools send them.
CREATE TABLE author (id bigint PRIMARY KEY, email varchar(20) COLLATE "C" CONSTRAINT author_email_set NOT NULL, code integer UNIQUE, a integer, b integer, CONSTRAINT author_ab UNIQUE (a, b));
CREATE TABLE book (id bigint PRIMARY KEY, author integer REFERENCES author (code) ON DELETE CASCADE, a integer, b integer, n integer CHECK (n > 0), CHECK (n < a), CHECK (a > 1), FOREIGN KEY (b, a) REFERENCES author (b, a));
INSERT INTO author VALUES (1, 'a@x', 10, 5, 6), (2, 'b@x', 20, 7, 8);
INSERT INTO book VALUES (1, 10, 5, 6, 1), (2, 20, NULL, NULL, NULL);
INSERT INTO book VALUES (3, 30, 5, 6, 1);
INSERT INTO book VALUES (3, 10, 6, 5, 1);
INSERT INTO book (id, n, a) VALUES (3, 9, 2);
CREATE TABLE wrong (a integer REFERENCES author (a));
CREATE TABLE wrong (a integer REFERENCES author (nope));
CREATE TABLE wrong (a integer COLLATE "C");
CREATE TABLE wrong (a integer DEFERRABLE);
CREATE TABLE wrong (a integer REFERENCES author (code) NOT DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE wrong (a integer REFERENCES author (code) DEFERRABLE DEFERRABLE);
CREATE TABLE wrong (a integer CONSTRAINT one CHECK (a > 1) CONSTRAINT one CHECK (a > 2));
CREATE TABLE wrong (a integer CONSTRAINT author_ab UNIQUE);
CREATE TABLE author_ab (a integer);
CREATE INDEX author_ab ON book (n);
CREATE INDEX IF NOT EXISTS author_ab ON book (n);
DROP INDEX author_ab;
DROP INDEX IF EXISTS author_ab;
-- refused
CREATE TABLE wrong (a text COLLATE "de_DE");
-- refused
CREATE TABLE wrong (a integer UNIQUE DEFERRABLE);
-- Names of constraints are PostgreSQL's.
ALTER TABLE book DROP CONSTRAINT book_check1;
ALTER TABLE book DROP CONSTRAINT book_check;
INSERT INTO book (id, n, a) VALUES (3, 9, 2);
ALTER TABLE book DROP CONSTRAINT book_n_check, DROP CONSTRAINT book_a_check;
INSERT INTO book (id, n, a) VALUES (4, -9, -2);
ALTER TABLE author DROP CONSTRAINT author_code_key;
ALTER TABLE author DROP CONSTRAINT author_ab;
ALTER TABLE book DROP CONSTRAINT book_b_a_fkey;
ALTER TABLE author DROP CONSTRAINT author_ab;
ALTER TABLE book DROP CONSTRAINT nope;
ALTER TABLE book DROP CONSTRAINT IF EXISTS nope;
SELECT * FROM book ORDER BY id;
DELETE FROM author WHERE id = 2;
SELECT * FROM book ORDER BY id;
ALTER TABLE book RENAME CONSTRAINT book_author_fkey TO writer;
ALTER TABLE book RENAME CONSTRAINT book_author_fkey TO writer;
INSERT INTO book (id, author) VALUES (5, 99);
ALTER TABLE book DROP CONSTRAINT writer;
INSERT INTO book (id, author) VALUES (5, 99);
ALTER TABLE book ADD CONSTRAINT writer FOREIGN KEY (author) REFERENCES author (code);
DELETE FROM book WHERE id = 5;
ALTER TABLE book ADD CONSTRAINT writer FOREIGN KEY (author) REFERENCES author (code) ON DELETE SET NULL;
ALTER TABLE book ADD CONSTRAINT writer CHECK (n > 0);
INSERT INTO book (id, author) VALUES (5, 99);
ALTER TABLE book ADD CHECK (n > 0);
ALTER TABLE book ADD CHECK (n > -10 OR n IS NULL);
ALTER TABLE book ADD CONSTRAINT named UNIQUE (n, a);
INSERT INTO book (id, n, a) VALUES (6, 9, 2);
ALTER TABLE author DROP CONSTRAINT author_pkey;
INSERT INTO author VALUES (1, 'c', 30, NULL, NULL);
INSERT INTO author VALUES (NULL, 'c', 40, NULL, NULL);
ALTER TABLE author ADD PRIMARY KEY (id);
UPDATE author SET id = 3 WHERE code = 30;
ALTER TABLE author ADD PRIMARY KEY (id);
ALTER TABLE author ADD PRIMARY KEY (code);
INSERT INTO author VALUES (1, 'c', 50, NULL, NULL);
DELETE FROM author WHERE code = 10;
SELECT * FROM book ORDER BY id;
-- refused
ALTER TABLE book ADD CONSTRAINT later CHECK (n > 5) NOT VALID;
-- refused
ALTER TABLE book VALIDATE CONSTRAINT writer;
-- Columns.
CREATE TABLE item (id bigint PRIMARY KEY, name varchar(5) NOT NULL DEFAULT 'x', n integer, q numeric(6,2), t text, UNIQUE (n));
CREATE TABLE part (id bigserial PRIMARY KEY, item bigint NOT NULL REFERENCES item ON DELETE CASCADE, note text);
CREATE INDEX item_by_name ON item (name DESC) WHERE n > 0;
CREATE UNIQUE INDEX item_by_q ON item (q);
INSERT INTO item VALUES (1, 'one', 1, 1.25, '7'), (2, 'two', 2, 2.50, ' 8 '), (3, 'three', NULL, NULL, NULL);
INSERT INTO part (item, note) VALUES (1, 'a'), (1, 'b'), (2, 'c'), (3, 'd');
DELETE FROM part WHERE id = 4;
ALTER TABLE item ALTER COLUMN name SET DEFAULT 'new', ALTER COLUMN n SET DEFAULT 5;
INSERT INTO item (id) VALUES (4) RETURNING name, n;
ALTER TABLE item ALTER name DROP DEFAULT;
INSERT INTO item (id, n) VALUES (5, 50);
ALTER TABLE item ALTER name DROP NOT NULL;
INSERT INTO item (id, n) VALUES (5, 50) RETURNING *;
ALTER TABLE item ALTER name SET NOT NULL;
UPDATE item SET name = 'five' WHERE id = 5;
ALTER TABLE item ALTER name SET NOT NULL;
ALTER TABLE item ALTER name SET NOT NULL;
INSERT INTO item (id, n) VALUES (6, 60);
ALTER TABLE item ALTER id DROP NOT NULL;
ALTER TABLE item ALTER nope SET NOT NULL;
ALTER TABLE item ALTER name TYPE varchar(3);
ALTER TABLE item ALTER name TYPE varchar(50);
UPDATE item SET name = 'a longer name' WHERE id = 5 RETURNING name;
ALTER TABLE item ALTER COLUMN name TYPE text;
ALTER TABLE item ALTER COLUMN q TYPE numeric(6,1);
SELECT * FROM item ORDER BY id;
INSERT INTO item (id, name, n, q) VALUES (7, 'x', 70, 1.3);
ALTER TABLE item ALTER COLUMN t TYPE integer;
ALTER TABLE item ALTER COLUMN t TYPE integer USING t::integer;
SELECT id, t + 1 AS more FROM item ORDER BY id;
ALTER TABLE item ALTER COLUMN t TYPE bigint, ALTER COLUMN t SET DEFAULT 3000000000, ADD CHECK (t <> 9);
INSERT INTO item (id, name, n) VALUES (8, 'x', 80) RETURNING t;
UPDATE item SET t = 9 WHERE id = 8;
ALTER TABLE item DROP CONSTRAINT item_t_check;
UPDATE item SET t = 9 WHERE id = 8;
-- refused
ALTER TABLE item ALTER COLUMN t TYPE text;
ALTER TABLE item ALTER COLUMN t DROP DEFAULT, ALTER COLUMN t TYPE text;
SELECT id, t FROM item ORDER BY id;
SELECT * FROM part ORDER BY id;
DELETE FROM item WHERE id = 2;
SELECT * FROM part ORDER BY id;
INSERT INTO part (item) VALUES (99);
INSERT INTO item VALUES (9, 'x', 1, 0, '');
ALTER TABLE part ADD COLUMN other bigint REFERENCES item, ADD COLUMN at timestamptz NOT NULL DEFAULT now(), ADD COLUMN IF NOT EXISTS note integer;
SELECT id, item, note, other, at <= now() AS same FROM part ORDER BY id;
UPDATE part SET other = 99;
UPDATE part SET other = 1;
ALTER TABLE part ADD COLUMN IF NOT EXISTS note integer;
ALTER TABLE part ADD COLUMN note integer;
ALTER TABLE part ADD COLUMN must integer NOT NULL;
ALTER TABLE part ADD COLUMN size integer CHECK (size > 0), ADD COLUMN tag text UNIQUE;
UPDATE part SET size = 0;
UPDATE part SET tag = 'a';
UPDATE part SET size = id, tag = id::text RETURNING id, size, tag;
ALTER TABLE part DROP COLUMN tag, DROP COLUMN size;
SELECT * FROM part WHERE false;
ALTER TABLE part DROP COLUMN tag;
ALTER TABLE part DROP COLUMN IF EXISTS tag;
ALTER TABLE item DROP COLUMN id;
ALTER TABLE item DROP COLUMN n;
DROP INDEX item_by_name;
DROP INDEX item_by_q;
SELECT * FROM item ORDER BY id;
ALTER TABLE IF EXISTS nope ADD COLUMN x integer;
ALTER TABLE IF EXISTS nope RENAME TO other;
ALTER TABLE nope ADD COLUMN x integer;
-- refused
ALTER TABLE part ALTER id TYPE integer;
-- refused
ALTER TABLE part ALTER COLUMN item TYPE integer;
-- refused
ALTER TABLE part DROP CONSTRAINT part_pkey;
-- refused
ALTER TABLE part ADD COLUMN number serial;
-- refused
ALTER TABLE part OWNER TO postgres;
-- Indexes.
CREATE TABLE person (id integer PRIMARY KEY, name text, email varchar(30), n numeric);
CREATE UNIQUE INDEX ON person (lower(email));
CREATE INDEX ON person (name text_pattern_ops, email varchar_pattern_ops DESC);
CREATE INDEX ON person (lower(name), id);
CREATE INDEX ON person (coalesce(name, email));
INSERT INTO person VALUES (1, 'Ann', 'A@x'), (2, 'ann', NULL), (3, 'ANN', NULL);
INSERT INTO person VALUES (4, 'Bob', 'a@X');
SELECT id FROM person WHERE lower(name) = 'ann' AND id > 1 ORDER BY id;
SELECT id FROM person WHERE name LIKE 'A%' ORDER BY id;
ALTER INDEX person_lower_idx RENAME TO mails;
ALTER INDEX person_lower_idx RENAME TO mails;
ALTER INDEX IF EXISTS person_lower_idx RENAME TO mails;
INSERT INTO person VALUES (4, 'Bob', 'a@X');
ALTER TABLE person DROP COLUMN n;
INSERT INTO person VALUES (4, 'Bob', 'a@X');
DROP INDEX mails, person_lower_id_idx;
INSERT INTO person VALUES (4, 'Bob', 'a@X');
DROP INDEX person_name_email_idx, nope;
DROP INDEX IF EXISTS person_name_email_idx, nope;
DROP INDEX person_coalesce_idx;
DROP INDEX person_name_email_idx;
CREATE INDEX ON person (nope(name));
CREATE INDEX ON person (id text_pattern_ops);
-- refused
CREATE INDEX ON person (name) INCLUDE (email);
-- refused
CREATE INDEX ON person (random());
-- refused
CREATE INDEX ON person ((id + 1));
-- Several tables.
-- refused
CREATE TABLE numbered (id integer PRIMARY KEY, n serial);
CREATE TABLE one (id bigserial PRIMARY KEY, x integer);
CREATE TABLE two (id bigserial PRIMARY KEY, one bigint REFERENCES one);
CREATE TABLE three (id bigserial PRIMARY KEY, two bigint REFERENCES two);
INSERT INTO one (x) VALUES (1), (2);
INSERT INTO two (one) VALUES (1);
INSERT INTO three (two) VALUES (1);
TRUNCATE one, two;
TRUNCATE one, three, two;
INSERT INTO one (x) VALUES (3) RETURNING id;
INSERT INTO two (one) VALUES (3);
TRUNCATE one RESTART IDENTITY CASCADE;
SELECT count(*) FROM two;
INSERT INTO one (x) VALUES (3) RETURNING id;
DROP TABLE one, two;
DROP TABLE one, nope;
INSERT INTO two (one) VALUES (1), (NULL);
DROP TABLE one CASCADE;
SELECT one FROM two ORDER BY id;
INSERT INTO two (one) VALUES (77);
DROP TABLE IF EXISTS two, nope, three;
SELECT * FROM three;
DROP TABLE two;
-- A reference that is checked at the end.
CREATE TABLE node (id integer PRIMARY KEY, up integer REFERENCES node DEFERRABLE INITIALLY DEFERRED, also integer REFERENCES node (id) DEFERRABLE);
INSERT INTO node VALUES (1, 2, NULL), (2, 1, 1);
INSERT INTO node VALUES (3, NULL, 4);
SELECT * FROM node ORDER BY id;
-- refused
CREATE TYPE mood AS ENUM ('a');
-- refused
COMMENT ON TABLE node IS 'x';
-- refused
EXPLAIN SELECT 1;
