-- Functions in FROM that give rows, and LATERAL.
CREATE TABLE doc (id bigint PRIMARY KEY, body jsonb, list jsonb, raw json, tags text[], at timestamptz, f double precision, b bytea, u uuid, p numeric);
INSERT INTO doc VALUES
    (1, '{"b": 1.50, "a": "x", "long": null, "c": {"z": [1, 2]}}', '[1, 2.50, "t", null, true, {"k": "v"}, [3]]', '{"b": 1.50,  "a": "x\u0041", "b":  [1,   2], "n": null}', '{a,b}', '2030-01-31', 0.1, '\x00ff', '00000000-0000-0000-0000-000000000001', 1.50),
    (2, '{}', '[]', '[ 1 , "a\n" ,  {"x":  1} , null ]', '{}', '2030-02-01 05:00', 1e300, '\x', NULL, 2.0),
    (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
SELECT value FROM jsonb_array_elements('[1, 2.50, "t", null, true, {"b": 1, "a": [2]}]');
SELECT * FROM jsonb_array_elements('[1, 2.50, "t", null, true]') AS x;
SELECT x FROM jsonb_array_elements('[1, 12345678901234567890.10]') AS x;
SELECT x.value, x.value -> 'a' FROM jsonb_array_elements('[{"a": 1}]') AS x;
SELECT y FROM jsonb_array_elements('[3, 4]') AS x (y) ORDER BY y DESC;
SELECT * FROM jsonb_array_elements_text('[1, 2.50, "t", null, true, {"b": 1}, ""]');
SELECT e, ordinality FROM jsonb_array_elements_text('["b", "a"]') WITH ORDINALITY AS t (e);
SELECT e, n FROM jsonb_array_elements('["b", "a"]') WITH ORDINALITY AS t (e, n) ORDER BY n DESC;
SELECT * FROM jsonb_object_keys('{"bb": 1, "a": 2, "c": 3}');
SELECT k FROM jsonb_object_keys('{"bb": 1, "a": 2, "c": 3}') AS k;
SELECT jsonb_object_keys FROM jsonb_object_keys('{"a": 2}');
SELECT * FROM jsonb_each('{"bb": 1.50, "a": null, "c": {"d": "e"}}');
SELECT * FROM jsonb_each_text('{"bb": 1.50, "a": null, "c": {"d": "e"}, "t": "x"}');
SELECT key, value FROM jsonb_each('{"bb": 1}') AS e;
SELECT e.k, e.v, n FROM jsonb_each_text('{"bb": 1, "a": 2}') WITH ORDINALITY AS e (k, v, n);
SELECT * FROM json_array_elements('[1.50, "a\u0042", {"x":   1} , null, [ ] ]');
SELECT * FROM json_array_elements_text('[1.50, "a\u0042", {"x":   1} , null, [ ] , 1e5]');
SELECT * FROM json_object_keys('{"b": 1, "a": {"x": 2}, "b": 3}');
SELECT * FROM json_each('{"b": 1.50, "a": {"x":   2}, "b":"s" }');
SELECT * FROM json_each_text('{"b": 1.50, "a": {"x":   2}, "b":"s\t", "n" : null }');
SELECT * FROM json_each(' { } ');
SELECT * FROM json_array_elements(' [ ] ');
SELECT * FROM json_array_elements(NULL);
SELECT * FROM jsonb_array_elements(NULL);
SELECT * FROM jsonb_each(NULL);
-- fails
SELECT * FROM jsonb_array_elements('{}');
-- fails
SELECT * FROM jsonb_array_elements('1');
-- fails
SELECT * FROM jsonb_each('[]');
-- fails
SELECT * FROM jsonb_object_keys('"a"');
-- fails
SELECT * FROM json_array_elements('{"a": 1}');
-- fails
SELECT * FROM json_each('[1]');
-- fails
SELECT * FROM jsonb_each('{"a": 1}') AS e (k, v, n);
-- fails
SELECT * FROM jsonb_array_elements(1);
-- fails
SELECT * FROM jsonb_array_elements('[1'::jsonb);
-- Beside tables.
SELECT id, e.value FROM doc, jsonb_array_elements(list) AS e ORDER BY id, e.value::text;
SELECT id, e.value FROM doc CROSS JOIN jsonb_array_elements_text(doc.list) AS e ORDER BY id, e.value;
SELECT id, e.key, e.value FROM doc LEFT JOIN jsonb_each(body) AS e ON true ORDER BY id, e.key;
SELECT id, e.key, e.value FROM doc LEFT JOIN LATERAL jsonb_each(body) AS e ON e.value <> '1.5' ORDER BY id, e.key;
SELECT id, e.key, e.value, e.n FROM doc LEFT JOIN jsonb_each_text(body) WITH ORDINALITY AS e (key, value, n) ON e.n > 1 ORDER BY id, e.n;
SELECT id, k FROM doc, json_object_keys(CASE WHEN id = 1 THEN raw END) AS k ORDER BY id, k;
SELECT id, k FROM doc, jsonb_object_keys(body) AS k WHERE k > 'a' ORDER BY id, k;
SELECT key, count(*), max(value) FROM doc, jsonb_each_text(body) GROUP BY key ORDER BY key;
SELECT value, count(*) FROM doc, jsonb_array_elements(list) AS e GROUP BY value ORDER BY value;
SELECT DISTINCT jsonb_typeof(value) FROM doc, jsonb_array_elements(list) ORDER BY 1;
SELECT id, (SELECT count(*) FROM jsonb_array_elements(list)) FROM doc ORDER BY id;
SELECT id, (SELECT string_agg(value, ',' ORDER BY value) FROM jsonb_array_elements_text(list)) FROM doc ORDER BY id;
SELECT id FROM doc WHERE EXISTS (SELECT 1 FROM jsonb_array_elements(list) AS e WHERE e.value = '2.5') ORDER BY id;
SELECT id, ARRAY(SELECT value FROM jsonb_array_elements_text(list) WITH ORDINALITY AS t (value, n) ORDER BY n DESC) FROM doc ORDER BY id;
SELECT id, a.value, b.value FROM doc, jsonb_array_elements(list) AS a, jsonb_array_elements(CASE jsonb_typeof(a.value) WHEN 'array' THEN a.value END) AS b ORDER BY id;
SELECT (e.value ->> 'sku')::text AS sku, (e.value ->> 'n')::integer AS n FROM jsonb_array_elements('[{"sku": "x", "n": 2}, {"sku": "y"}]') AS e ORDER BY sku;
-- args: [[{"sku": "x", "n": 2}, {"sku": "y", "n": 3}]]
SELECT e ->> 'sku' AS sku, (e ->> 'n')::integer * 2 AS n FROM jsonb_array_elements($1) AS e ORDER BY 1;
-- args: [{"a": 1, "b": "x"}]
SELECT key, value FROM jsonb_each_text($1) ORDER BY key DESC;
INSERT INTO doc (id, p) SELECT 10 + n, (e ->> 'p')::numeric FROM jsonb_array_elements('[{"p": 1.10}, {"p": 2}]') WITH ORDINALITY AS t (e, n);
SELECT id, p FROM doc WHERE id > 10 ORDER BY id;
UPDATE doc SET p = (e.value ->> 'p')::numeric FROM jsonb_array_elements('[{"id": 11, "p": 7.5}]') AS e WHERE doc.id = (e.value ->> 'id')::bigint RETURNING doc.id, p;
DELETE FROM doc USING jsonb_array_elements_text('["11", "12"]') AS e WHERE doc.id = e.value::bigint RETURNING doc.id;
-- fails
UPDATE doc SET p = 1 FROM jsonb_array_elements(doc.list) AS e;
-- fails
DELETE FROM doc USING jsonb_array_elements(doc.list) AS e;
-- fails
SELECT 1 FROM jsonb_array_elements(doc.list) AS e, doc;
-- fails
SELECT id FROM doc RIGHT JOIN jsonb_array_elements(doc.list) AS e ON true;
SELECT id, e.value FROM doc RIGHT JOIN jsonb_array_elements('[1, 9]') AS e ON e.value = to_jsonb(doc.id) ORDER BY e.value;
SELECT d.k, e.value FROM (SELECT id::text AS k FROM doc) AS d FULL JOIN jsonb_array_elements_text('["1", "9"]') AS e (value) ON e.value = d.k ORDER BY e.value, d.k;
-- refused
SELECT e FROM jsonb_each('{"a": 1}') AS e;
SELECT jsonb_array_elements('[1]');
SELECT * FROM regexp_split_to_table('a b', ' ');
SELECT * FROM string_to_table('a,b,,c', ',');
SELECT x, n FROM string_to_table('a,b,,c', ',', '') WITH ORDINALITY AS t (x, n) ORDER BY n;
SELECT * FROM string_to_table('abc', NULL);
SELECT * FROM string_to_table('abc', '');
SELECT * FROM string_to_table('', ',');
SELECT * FROM string_to_table(NULL, ',');
SELECT id, t FROM doc, string_to_table(id::text || ',x', ',') AS t ORDER BY id, t;
-- unnest with columns beside it and numbers.
SELECT id, t, n FROM doc, unnest(tags) WITH ORDINALITY AS x (t, n) ORDER BY id, n;
SELECT id, t FROM doc LEFT JOIN unnest(tags) AS t ON t > 'a' ORDER BY id;
-- Series.
SELECT * FROM generate_series('2030-01-31'::date, '2030-05-31', '1 month') AS d;
SELECT * FROM generate_series('2030-01-01'::timestamp, '2030-01-02', interval '8 hours') AS at;
SELECT * FROM generate_series('2030-01-01'::timestamptz, '2030-01-03', '1 day');
SELECT * FROM generate_series('2030-01-03'::timestamptz, '2030-01-01', '-1 day') AS d;
SELECT * FROM generate_series('2030-01-03'::timestamptz, '2030-01-01', '1 day') AS d;
SELECT * FROM generate_series('2030-01-01'::timestamp, NULL, '1 day') AS d;
SELECT * FROM generate_series('9999-12-30'::timestamp, '9999-12-31', '1 day') AS d;
SELECT * FROM generate_series('9999-12-01'::timestamp, '9999-12-31', '1 month') AS d;
SELECT d::date, n FROM generate_series('2030-01-01'::date, '2030-01-03'::date, interval '1 day') WITH ORDINALITY AS t (d, n) ORDER BY n DESC;
SELECT d::date, count(doc.id) FROM generate_series('2030-01-30'::date, '2030-02-02'::date, '1 day') AS d LEFT JOIN doc ON doc.at >= d AND doc.at < d + interval '1 day' GROUP BY d ORDER BY d;
SELECT id, g FROM doc, generate_series(doc.at, doc.at + interval '1 day', interval '12 hours') AS g ORDER BY id, g;
-- fails
SELECT * FROM generate_series('2030-01-01'::timestamp, '2030-01-02', '0 days');
-- fails
SELECT * FROM generate_series('2030-01-01'::timestamp, '2030-01-02');
-- fails
SELECT * FROM generate_series('2030-01-01', '2030-01-02', '1 day');
-- args: [datetime(2030, 1, 1, tzinfo=UTC), datetime(2030, 1, 2, tzinfo=UTC)]
SELECT * FROM generate_series($1::timestamptz, $2, '12 hours') AS g;
SELECT id, g FROM doc, generate_series(1, id) AS g ORDER BY id, g;
SELECT id, g FROM doc, generate_series(id, 1, -1) AS g ORDER BY id, g;
SELECT id, g FROM doc LEFT JOIN generate_series(3, id::integer) AS g ON true ORDER BY id, g;
SELECT g, n FROM generate_series(5, 1, -2) WITH ORDINALITY AS t (g, n);
SELECT g, n FROM generate_series(9223372036854775800, 9223372036854775807, 5) WITH ORDINALITY AS t (g, n);
SELECT id, g FROM doc, generate_series(9223372036854775806, 9223372036854775806 + (id - id) + 1) AS g ORDER BY id, g;
SELECT * FROM generate_series(1.0, 2.05, 0.25) AS g;
SELECT * FROM generate_series(3, 1.5, -0.50) AS g;
SELECT * FROM generate_series(1, 2.5) AS g;
SELECT g, g / 2 FROM generate_series(1, 3) AS g WHERE g > 2;
-- fails
SELECT * FROM generate_series(1.0, 2.0, 0);
-- fails
SELECT g FROM doc, generate_series(1, id, 0) AS g;
-- LATERAL
CREATE TABLE line (id bigint PRIMARY KEY, doc bigint, n integer, price numeric, f double precision, b bytea, u uuid, ok boolean, at timestamptz, d interval, j jsonb, t text[]);
INSERT INTO line VALUES
    (1, 1, 5, 1.50, 0.1, '\x00', '00000000-0000-0000-0000-00000000000a', true, '2030-01-01', '1 day', '{"a": 1.0}', '{a,NULL}'),
    (2, 1, 7, 2.00, 1e-300, '\xff', NULL, false, '2030-01-02', '24 hours', '[]', '{}'),
    (3, 2, 7, 1.5, 3, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
    (4, 1, NULL, 1.0, 123456789.123456789, '\x', NULL, true, NULL, '1 month', '"s"', NULL);
SELECT doc.id, l.id, l.n FROM doc CROSS JOIN LATERAL (SELECT id, n FROM line WHERE line.doc = doc.id ORDER BY n DESC NULLS LAST, id LIMIT 1) AS l ORDER BY doc.id;
SELECT doc.id, l.id, l.n FROM doc LEFT JOIN LATERAL (SELECT id, n FROM line WHERE line.doc = doc.id ORDER BY n DESC NULLS LAST, id LIMIT 2) AS l ON true ORDER BY doc.id, l.id;
SELECT doc.id, l.* FROM doc LEFT JOIN LATERAL (SELECT * FROM line WHERE line.doc = doc.id) AS l ON l.n > 5 ORDER BY doc.id, l.id;
SELECT doc.id, l.* FROM doc, LATERAL (SELECT * FROM line WHERE line.doc = doc.id) AS l ORDER BY l.id;
SELECT doc.id, total, n FROM doc, LATERAL (SELECT sum(price), count(*) FROM line WHERE line.doc = doc.id) AS s (total, n) ORDER BY doc.id;
SELECT doc.id, s.x, s.y FROM doc, LATERAL (SELECT doc.id * 2 AS x, doc.p + 1 AS y) AS s WHERE s.x > 2 ORDER BY doc.id;
SELECT doc.id, s.x, r.z FROM doc, LATERAL (SELECT doc.id * 2 AS x) AS s, LATERAL (SELECT s.x + doc.id AS z) AS r ORDER BY r.z DESC;
SELECT doc.id, v.k, v.w FROM doc, LATERAL (VALUES ('a', doc.id), ('b', doc.id + 1)) AS v (k, w) ORDER BY doc.id, v.k;
SELECT doc.id, v.k FROM doc, LATERAL (SELECT doc.id AS k UNION ALL SELECT line.id FROM line WHERE line.doc = doc.id) AS v ORDER BY doc.id, v.k;
SELECT l.price, count(*) FROM doc, LATERAL (SELECT price FROM line WHERE line.doc = doc.id) AS l GROUP BY l.price ORDER BY l.price;
SELECT DISTINCT l.d FROM doc, LATERAL (SELECT d FROM line WHERE line.doc = doc.id AND d IS NOT NULL) AS l ORDER BY l.d;
SELECT l.f, l.f + 1, l.b, l.u, l.j -> 'a', l.t[1] FROM doc, LATERAL (SELECT f, b, u, j, t FROM line WHERE line.doc = doc.id) AS l ORDER BY l.f;
SELECT l.f FROM doc, LATERAL (SELECT f FROM line WHERE line.doc = doc.id) AS l WHERE l.f = 0.1 OR l.f = 123456789.123456789 ORDER BY l.f;
SELECT doc.id, (SELECT max(l.n) FROM line AS o, LATERAL (SELECT line.n FROM line WHERE line.doc = doc.id AND line.id = o.id) AS l) FROM doc ORDER BY doc.id;
SELECT doc.id, l.m FROM doc LEFT JOIN LATERAL (SELECT max(line.n) AS m FROM line WHERE line.doc = doc.id GROUP BY line.doc) AS l ON l.m > 0 ORDER BY doc.id;
SELECT doc.id, e.v FROM doc, LATERAL (SELECT value AS v FROM jsonb_array_elements(doc.list) WHERE jsonb_typeof(value) = 'number') AS e ORDER BY doc.id, e.v;
SELECT s.x FROM LATERAL (SELECT 1 AS x) AS s;
SELECT doc.id, s.x FROM doc JOIN LATERAL (SELECT line.id AS x, line.doc FROM line) AS s ON s.doc = doc.id ORDER BY s.x;
SELECT doc.id, s.n FROM doc JOIN LATERAL (SELECT line.id, line.n FROM line WHERE line.doc = doc.id) AS s USING (id) ORDER BY id;
WITH big AS (SELECT id, n FROM line WHERE n > 5) SELECT doc.id, l.id FROM doc, LATERAL (SELECT big.id FROM big WHERE big.id > doc.id) AS l ORDER BY doc.id, l.id;
-- args: [1]
SELECT doc.id, l.n FROM doc, LATERAL (SELECT n FROM line WHERE line.doc = doc.id ORDER BY id LIMIT $1) AS l ORDER BY doc.id;
UPDATE line SET n = l.m FROM doc, LATERAL (SELECT max(o.id)::integer AS m FROM line AS o WHERE o.doc = doc.id) AS l WHERE line.doc = doc.id RETURNING line.id, line.n;
INSERT INTO line (id, doc, n) SELECT 100 + doc.id, doc.id, l.c FROM doc, LATERAL (SELECT count(*)::integer AS c FROM line WHERE line.doc = doc.id) AS l RETURNING id, n;
-- fails
SELECT doc.id FROM doc, (SELECT n FROM line WHERE line.doc = doc.id) AS l;
-- fails
SELECT doc.id FROM LATERAL (SELECT n FROM line WHERE line.doc = doc.id) AS l, doc;
-- fails
SELECT doc.id FROM doc RIGHT JOIN LATERAL (SELECT n FROM line WHERE line.doc = doc.id) AS l ON true;
-- fails
UPDATE line SET n = l.m FROM LATERAL (SELECT line.n AS m) AS l;
-- fails
SELECT p, (SELECT s.y FROM (SELECT doc.id AS y) AS s) FROM doc GROUP BY p;
-- fails
SELECT p, (SELECT count(*) FROM jsonb_array_elements(doc.list)) FROM doc GROUP BY p;
SELECT id, (SELECT s.y FROM (SELECT doc.id AS y) AS s) FROM doc GROUP BY id ORDER BY id;
