-- Whole rows as documents.
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TABLE t (
  id integer PRIMARY KEY, name text, price numeric(8,2), f double precision, ok boolean, j jsonb, tags text[], at timestamptz, day date,
  m mood, u uuid, c char(3), "Odd name" bigint
);
INSERT INTO t VALUES
  (1, 'a "b"', 1.50, 0.5, true, '{"x": [1, 2]}', '{a,b}', '2030-01-31 12:00:00+00', '2030-01-31', 'ok', '00000000-0000-0000-0000-000000000001', 'x', 5),
  (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
CREATE TABLE o (id integer PRIMARY KEY, t integer REFERENCES t, n integer);
INSERT INTO o VALUES (1, 1, 10), (2, 1, 20), (3, 2, 30);
SELECT to_jsonb(t) FROM t ORDER BY id;
SELECT row_to_json(t)::text, to_json(t)::text FROM t ORDER BY id;
SELECT to_jsonb(t.*)::text, row_to_json(o.*) FROM t JOIN o ON o.t = t.id ORDER BY o.id;
SELECT row_to_json(s), row_to_json(s) ->> 'total' AS total FROM (SELECT t, sum(n) AS total FROM o GROUP BY t) AS s ORDER BY s.t;
SELECT to_jsonb(v) FROM (VALUES (1, 'one'), (2, NULL)) AS v (n, word) ORDER BY v.n;
WITH c AS (SELECT id, n FROM o) SELECT row_to_json(c) FROM c ORDER BY c.id;
SELECT jsonb_agg(o ORDER BY o.id) FROM o;
SELECT t, jsonb_agg(o.* ORDER BY n DESC) FILTER (WHERE n > 10) AS listed FROM o GROUP BY t ORDER BY t;
SELECT t.id, (SELECT jsonb_agg(o ORDER BY o.id) FROM o WHERE o.t = t.id) AS orders FROM t ORDER BY t.id;
SELECT x.id, (SELECT to_jsonb(x) - 'at' - 'j') AS again FROM t AS x ORDER BY x.id;
-- A column has precedence over a relation of its name.
SELECT to_jsonb(t) FROM o ORDER BY o.id;
SELECT to_jsonb(t), to_jsonb(t.*) -> 'name' AS name FROM o AS t ORDER BY t.id;
SELECT id, to_jsonb(o), row_to_json(o) FROM o GROUP BY o.id ORDER BY id;
SELECT to_jsonb(o) FROM o GROUP BY id, t, n ORDER BY id;
SELECT to_jsonb(o) FROM o GROUP BY n;
SELECT to_jsonb(n) FROM generate_series(1, 2) AS n ORDER BY 1;
INSERT INTO o VALUES (4, NULL, 40) RETURNING to_jsonb(o);
UPDATE o SET n = 41 WHERE id = 4 RETURNING row_to_json(o);
DELETE FROM o AS x WHERE id = 4 RETURNING to_jsonb(x) AS old_row;
SELECT row_to_json(1);
-- refused
SELECT row_to_json(o, true) FROM o;
SELECT row_to_json(n) FROM o;
SELECT row_to_json();
SELECT to_jsonb(nope) FROM o;
SELECT to_jsonb(nope.*) FROM o;
CREATE VIEW w AS SELECT id, to_jsonb(o) AS document FROM o;
SELECT to_jsonb(w) FROM w ORDER BY w.id;
-- refused
SELECT to_jsonb(o) FROM t LEFT JOIN o ON o.t = t.id;
-- refused
SELECT json_agg(o) FROM o;
-- refused
SELECT to_jsonb(ROW(1, 2));
-- refused
SELECT jsonb_agg(o) OVER () FROM o;
-- refused
SELECT count(o) FROM o;
-- refused
SELECT o FROM o;
SELECT id, to_jsonb(o), to_jsonb(t) -> 'name' AS name, to_jsonb(id) AS key FROM t JOIN o USING (id) ORDER BY id;
SELECT t.id, l.document FROM t, LATERAL (SELECT jsonb_build_array(to_jsonb(t) -> 'id', max(o.n)) AS document FROM o WHERE o.t = t.id) AS l ORDER BY t.id;
SELECT to_jsonb(o) FROM o WHERE to_jsonb(o) @> '{"n": 20}';
SELECT t FROM o GROUP BY t HAVING jsonb_agg(o) @> '[{"n": 30}]';
SELECT DISTINCT ON (t) t, to_jsonb(o) FROM o ORDER BY t, n DESC;
SELECT id, row_number() OVER (ORDER BY n DESC) AS place, row_to_json(o) FROM o ORDER BY id;
SELECT 1 AS one, to_jsonb(o) FROM o WHERE id = 1 UNION ALL SELECT 2, to_jsonb(v) FROM (VALUES (1)) AS v (a) ORDER BY one;
INSERT INTO o VALUES (1, 2, 7) ON CONFLICT (id) DO UPDATE SET n = (to_jsonb(excluded) ->> 'n')::integer + (to_jsonb(o) ->> 'n')::integer RETURNING *;
WITH made AS (INSERT INTO o VALUES (9, 1, 90) RETURNING *) SELECT to_jsonb(made) FROM made;
SELECT to_jsonb(e) FROM jsonb_each('{"a": 1, "b": [2]}') AS e ORDER BY e.key;
SELECT to_jsonb(e) FROM unnest(ARRAY[1, 2], ARRAY['a', NULL]) AS e (n, word) ORDER BY e.n;
SELECT to_jsonb(e) FROM generate_series(1, 2) WITH ORDINALITY AS e (n, place) ORDER BY e.n;
CREATE TABLE many (id integer PRIMARY KEY, twice integer GENERATED ALWAYS AS (id * 2) STORED);
INSERT INTO many (id) VALUES (1) RETURNING to_jsonb(many);
-- refused
CREATE TABLE checked (id integer, CHECK (to_jsonb(checked) ? 'id'));
-- refused
ALTER TABLE many ADD CONSTRAINT whole CHECK (to_jsonb(many.*) ? 'id');
-- refused
SELECT row_to_json(NULL);
