-- Enumerations: stored as places, sorted as declared.
CREATE TYPE mood AS ENUM ('sad','ok','happy');
CREATE TABLE person (id integer primary key, m mood NOT NULL DEFAULT 'ok', ms mood[], n text, f mood);
INSERT INTO person VALUES (1,'happy','{sad,ok}','sad'),(2,'sad',NULL,'ok'),(3,DEFAULT,'{}','x');
INSERT INTO person (id, m) VALUES (4, 'sad'::mood) RETURNING *;
SELECT id, m, m::text, m > 'sad', m = 'ok', ms, ms[1], m::varchar(2), f FROM person ORDER BY m, id;
SELECT max(m), min(m), count(m), count(DISTINCT m) FROM person;
SELECT m, count(*) FROM person GROUP BY m ORDER BY m DESC;
SELECT array_agg(m ORDER BY id) FROM person;
SELECT string_agg(m::text, ',' ORDER BY m) FROM person;
INSERT INTO person VALUES (9,'nope');
SELECT 'nope'::mood;
SELECT n::mood FROM person WHERE id = 3;
SELECT n::mood FROM person WHERE id < 3 ORDER BY id;
SELECT 'sad'::mood < 'happy'::mood, 'sad' < 'happy'::mood;
SELECT m || 'x', concat(m, 1), to_jsonb(m), jsonb_build_object('m', m, m, 1), format('%s', m), json_build_array(m), to_json(m), row_number() OVER (ORDER BY m), lag(m) OVER (ORDER BY id), first_value(m) OVER (ORDER BY id) FROM person ORDER BY id;
SELECT jsonb_agg(m ORDER BY id), jsonb_object_agg(id, m), json_agg(m ORDER BY id) FROM person;
SELECT coalesce(f, m), CASE WHEN id = 1 THEN m ELSE 'sad' END, greatest(m, 'ok'), nullif(m, 'sad') FROM person ORDER BY id;
SELECT m FROM person WHERE m IN ('sad','ok') ORDER BY id;
SELECT m FROM person WHERE m = ANY ('{sad,happy}') ORDER BY id;
SELECT m FROM person WHERE m = ANY (ARRAY['sad','happy']::mood[]) ORDER BY id;
SELECT id FROM person WHERE m BETWEEN 'ok' AND 'happy' ORDER BY id;
SELECT m FROM person UNION SELECT 'sad'::mood ORDER BY 1;
SELECT m FROM person WHERE m = 1;
SELECT m FROM person WHERE m = n;
SELECT m FROM person WHERE m::text = n;
SELECT m::integer FROM person;
SELECT m + 1 FROM person;
SELECT length(m) FROM person;
SELECT upper(m::text) FROM person ORDER BY id;
SELECT m LIKE 's%' FROM person;
SELECT unnest(ms) FROM person;
SELECT * FROM unnest('{sad,ok}'::mood[]) AS u;
-- refused
SELECT ms || 'sad'::mood, array_length(ms, 1), 'ok' = ANY (ms), array_to_string(ms, ','), ms::text, ms = '{sad,ok}' FROM person ORDER BY id;
UPDATE person SET m = 'happy', f = m WHERE id = 2 RETURNING m, f;
UPDATE person SET m = CASE WHEN id = 1 THEN 'sad' ELSE 'ok' END;
UPDATE person SET m = (CASE WHEN id = 1 THEN 'sad' ELSE 'ok' END)::mood;
UPDATE person SET m = 'a' || 'b';
INSERT INTO person (id, m) SELECT 7, 'sad';
INSERT INTO person (id, m) SELECT 8, n FROM person WHERE id = 1;
INSERT INTO person (id, m) VALUES (1, 'sad') ON CONFLICT (id) DO UPDATE SET m = excluded.m RETURNING m;
ALTER TYPE mood ADD VALUE 'great';
ALTER TYPE mood ADD VALUE IF NOT EXISTS 'great';
ALTER TYPE mood ADD VALUE 'great';
ALTER TYPE mood ADD VALUE 'best' AFTER 'great';
ALTER TYPE mood RENAME VALUE 'ok' TO 'okay';
ALTER TYPE mood RENAME VALUE 'ok' TO 'okay';
SELECT m FROM person ORDER BY m, id;
CREATE INDEX ON person (m);
CREATE INDEX ON person (n) WHERE m = 'sad';
ALTER TABLE person ADD COLUMN g mood DEFAULT 'sad', ADD COLUMN h mood NOT NULL DEFAULT 'happy';
SELECT g, h FROM person ORDER BY id;
ALTER TABLE person ALTER COLUMN n DROP NOT NULL;
UPDATE person SET n = 'sad';
ALTER TABLE person ALTER COLUMN n TYPE mood USING n::mood;
ALTER TABLE person ALTER COLUMN f TYPE text;
ALTER TABLE person ALTER COLUMN f TYPE text USING f::text;
SELECT n, f FROM person ORDER BY id;
DROP TYPE mood;
DROP TABLE person;
DROP TYPE mood;
DROP TYPE IF EXISTS mood CASCADE;
DROP TYPE mood;
-- refused
CREATE TYPE e AS ENUM ();
CREATE TYPE mood2 AS ENUM ('sad','ok','happy');
CREATE TABLE people (id integer primary key, m mood2 NOT NULL DEFAULT 'ok', ms mood2[], n text, f mood2);
INSERT INTO people VALUES (1,'happy','{sad,ok}','sad'),(2,'sad',NULL,'ok'),(3,DEFAULT,'{}','x');
SELECT max(m), min(m), count(m), count(DISTINCT m) FROM people;
SELECT max(m) OVER (ORDER BY id) FROM people ORDER BY id;
SELECT m FROM people WHERE m = ANY ('{sad,happy}') ORDER BY id;
SELECT m FROM people WHERE m = ANY (ARRAY['sad','happy']::mood2[]) ORDER BY id;
SELECT m FROM people WHERE m <> ALL (ARRAY['sad','happy']::mood2[]) ORDER BY id;
SELECT m FROM people WHERE 'sad' = ANY (ms) ORDER BY id;
SELECT ms || 'sad'::mood2 FROM people ORDER BY id;
SELECT array_length(ms, 1) FROM people ORDER BY id;
-- refused
SELECT array_to_string(ms, ',') FROM people ORDER BY id;
SELECT ms::text FROM people ORDER BY id;
SELECT ms = '{sad,ok}' FROM people ORDER BY id;
SELECT ms[1:2], ms @> '{sad}', cardinality(ms), array_append(ms, 'ok'), array_position(ms, 'ok') FROM people ORDER BY id;
SELECT '{sad,nope}'::mood2[];
-- refused
SELECT ms::text[] FROM people;
-- refused
SELECT n::text::mood2[] FROM people;
-- refused
SELECT to_jsonb(ms) FROM people;
-- refused
SELECT jsonb_build_array(ms) FROM people;
SELECT DISTINCT m FROM people ORDER BY m;
SELECT count(*) FROM people WHERE m IS DISTINCT FROM 'sad';
SELECT m FROM people WHERE (m, id) > ('sad', 1) ORDER BY id;
SELECT p.id, q.id FROM people p JOIN people q ON p.m < q.m ORDER BY 1, 2;
SELECT p.id FROM people p JOIN people q USING (m) ORDER BY 1;
SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY m), mode() WITHIN GROUP (ORDER BY m) FROM people;
SELECT array_agg(DISTINCT m) FROM people;
SELECT bool_or(m = 'sad') FROM people;
SELECT 'a' IN ('b') , m IN (SELECT m FROM people) FROM people;
CREATE VIEW pv AS SELECT m, id FROM people WHERE m = 'ok';
SELECT * FROM pv;
-- refused
ALTER TYPE mood2 RENAME VALUE 'ok' TO 'okay';
DROP VIEW IF EXISTS pv CASCADE;
WITH x AS (INSERT INTO people (id, m) VALUES (11, 'sad') RETURNING m, id) SELECT * FROM x;
UPDATE people SET m = v.m FROM (VALUES (1, 'sad'::mood2)) AS v (id, m) WHERE v.id = people.id RETURNING people.m;
INSERT INTO people (id, m) SELECT * FROM unnest(ARRAY[21,22], ARRAY['sad','ok']::mood2[]) RETURNING m;
-- refused
SELECT * FROM jsonb_to_recordset('[{"m":"sad"}]') AS x(m mood2);
CREATE TABLE copied AS SELECT m, ms FROM people;
SELECT m, ms FROM copied ORDER BY m, ms;
ALTER TABLE people ALTER COLUMN m SET DEFAULT 'happy';
INSERT INTO people (id) VALUES (99) RETURNING m;
CREATE INDEX ON people (id) WHERE m = 'sad';
CREATE UNIQUE INDEX um ON people (f) WHERE m = 'sad';
INSERT INTO people (id, m, f) VALUES (101, 'sad', 'ok'), (102, 'sad', 'happy') ON CONFLICT (f) WHERE m = 'sad' DO NOTHING RETURNING m, f;
SELECT m::text::mood2 FROM people ORDER BY id;
SELECT mood2 'sad', cast('ok' AS mood2);
-- refused
SELECT 'sad'::other.mood2;
-- refused
SELECT mood2('sad');
SELECT m FROM people ORDER BY m::text, id;
SELECT num_nulls(m), m IS NULL FROM people ORDER BY id;
SELECT m FROM people EXCEPT SELECT 'sad' ORDER BY 1;
CREATE TABLE mood2 (a integer);
CREATE TYPE people AS ENUM ('a');
-- refused
CREATE TYPE text AS ENUM ('a');
-- refused
CREATE TYPE "Weird" AS ENUM ('a');
DROP TABLE people, copied;

-- A migration that gives a column other labels.
CREATE TYPE state AS ENUM ('new', 'paid');
CREATE TABLE sale (id integer PRIMARY KEY, state state NOT NULL DEFAULT 'new', states state[] DEFAULT '{paid}', CHECK (state >= 'new'));
CREATE TABLE part_of_sale (sale integer REFERENCES sale (id), state state);
INSERT INTO sale (id) VALUES (1), (2);
INSERT INTO part_of_sale VALUES (1, 'paid');
CREATE INDEX sale_by_state ON sale (state) WHERE state > 'new';
ALTER TYPE state RENAME TO state_old;
SELECT * FROM sale ORDER BY id;
SELECT s.id, p.state FROM sale AS s JOIN part_of_sale AS p ON p.sale = s.id;
-- fails
INSERT INTO part_of_sale VALUES (9, 'paid');
CREATE TYPE state AS ENUM ('new', 'sent', 'paid');
ALTER TABLE sale DROP CONSTRAINT sale_state_check;
DROP INDEX sale_by_state;
ALTER TABLE sale ALTER COLUMN state DROP DEFAULT;
ALTER TABLE sale ALTER COLUMN state TYPE state USING state::text::state;
ALTER TABLE sale ALTER COLUMN state SET DEFAULT 'sent'::state, DROP COLUMN states;
-- fails
DROP TYPE state_old;
ALTER TABLE part_of_sale ALTER COLUMN state TYPE state USING state::text::state;
DROP TYPE state_old;
INSERT INTO sale (id) VALUES (3) RETURNING state;
-- fails
ALTER TYPE state RENAME TO sale;
-- fails
ALTER TYPE nothing RENAME TO something;
SELECT enum_range(NULL::state), enum_first(state), enum_last(NULL::state), enum_range(state)::text FROM sale ORDER BY id;
SELECT s.label, count(sale.id) FROM unnest(enum_range(NULL::state)) AS s (label) LEFT JOIN sale ON sale.state = s.label GROUP BY s.label ORDER BY s.label;
-- fails
SELECT enum_range('new');
-- refused
SELECT enum_range('new'::state, 'sent'::state);
DROP TABLE part_of_sale, sale;
DROP TYPE state;
