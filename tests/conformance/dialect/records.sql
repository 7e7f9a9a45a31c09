-- jsonb_to_record and jsonb_to_recordset.
CREATE TABLE g (id integer PRIMARY KEY, name text, n numeric(6,2), at timestamptz, ok boolean, doc jsonb);
SELECT * FROM jsonb_to_record('{"a": 1, "b": "x", "c": null, "z": 9}') AS t (a integer, b text, c text, d bigint);
SELECT * FROM jsonb_to_recordset('[{"a": 1, "b": "x"}, {"b": "y", "a": null}, {}]') AS t (a integer, b text) ORDER BY b;
SELECT t.a + 1 AS next, upper(t.b) FROM jsonb_to_recordset('[{"a": "12", "b": true}, {"a": -3, "b": 1.50}]') AS t (a integer, b text) WHERE t.a IS NOT NULL ORDER BY t.a;
SELECT * FROM jsonb_to_record('{"n": 1.005, "f": "2.5", "ok": "yes", "at": "2030-01-02", "d": "2030-01-02", "i": "1 day", "u": "11111111-1111-1111-1111-111111111111", "j": {"k": [1]}, "t": {"k": 1}, "l": [1, "a"]}') AS t (n numeric(6,2), f double precision, ok boolean, at timestamptz, d date, i interval, u uuid, j jsonb, t text, l text);
SELECT * FROM jsonb_to_record('{"a": null, "b": "null", "c": 5}') AS t (a jsonb, b jsonb, c jsonb);
SELECT count(*), count(t.a) FROM jsonb_to_record(NULL) AS t (a integer);
SELECT count(*) FROM jsonb_to_recordset(NULL) AS t (a integer);
SELECT count(*) FROM jsonb_to_recordset('[]') AS t (a integer);
-- args: [[{"id": 1, "name": "a", "n": 1.5, "at": "2030-01-01T00:00:00Z", "ok": True, "doc": {"k": 1}}, {"id": 2, "name": None, "doc": [1]}]]
INSERT INTO g SELECT * FROM jsonb_to_recordset($1) AS t (id integer, name text, n numeric, at timestamptz, ok boolean, doc jsonb) RETURNING *;
UPDATE g SET name = t.name FROM jsonb_to_recordset('[{"id": 2, "name": "b"}]') AS t (id integer, name text) WHERE g.id = t.id RETURNING g.id, g.name;
SELECT g.id, t.k FROM g, jsonb_to_record(CASE g.id WHEN 1 THEN g.doc ELSE '{}' END) AS t (k integer) ORDER BY g.id;
SELECT * FROM jsonb_to_record('{"a": "x"}') AS t (a integer);
SELECT * FROM jsonb_to_record('{"a": 1.5}') AS t (a integer);
SELECT * FROM jsonb_to_record('{"a": 3000000000}') AS t (a integer);
SELECT * FROM jsonb_to_record('[1]') AS t (a integer);
SELECT * FROM jsonb_to_record('1') AS t (a integer);
SELECT * FROM jsonb_to_recordset('{}') AS t (a integer);
SELECT * FROM jsonb_to_recordset('[1]') AS t (a integer);
SELECT * FROM jsonb_to_recordset('[]');
SELECT * FROM jsonb_array_elements('[]') AS t (a jsonb);
-- refused
SELECT * FROM jsonb_to_record('{"a": [1]}') AS t (a integer[]);
-- refused
SELECT * FROM jsonb_to_record('{"a": "abc"}') AS t (a varchar(2));
SELECT jsonb_to_recordset('[{"a": 1}]');
