-- jsonb: looking inside, asking, changing, making, casting.
CREATE TABLE j (id integer PRIMARY KEY, d jsonb, t text, n integer, f double precision, p numeric);
INSERT INTO j VALUES (1, '{"a": 1, "b": [1, 2.50, null, "x"], "c": {"d": "deep", "e": true}, "n": "7"}', 'a', 0, 1.5, 2.50);
INSERT INTO j VALUES (2, '[1, "a", {"a": 2}, [3, [4]], null, false]', 'b', -1, 1e20, 100);
INSERT INTO j VALUES (3, NULL, NULL, NULL, NULL, NULL), (4, '{}', 'c', 5, -0.1, -1.0), (5, '[]', '', 1, 0, 0.00), (6, '"a"', 'a', 0, 1, 1), (7, '5', '0', 0, 1, 1), (8, 'null', 'x', 0, 1, 1), (9, 'true', 'y', 0, 1, 1);
INSERT INTO j (id, d) VALUES (10, '{"bb": 1, "a": 2, "a": 3, "ccc": 1.10, "é": "€😀\n\u0001\"\\/", "": 1e2, "x": -0.0, "y": 1E-3, "z": 12345678901234567890.123456789}');
SELECT id, d FROM j ORDER BY id;
SELECT id, d::text FROM j ORDER BY id;
-- Looking inside.
SELECT id, d -> 'a', d ->> 'a', d -> 'b', d ->> 'b', d -> 'c' -> 'd', d -> 'c' ->> 'd', d -> 'c' ->> 'e', d ->> 'nope' FROM j ORDER BY id;
SELECT id, d -> 0, d ->> 0, d -> 1, d ->> 1, d -> -1, d ->> -1, d -> 99, d -> n, d -> t, d ->> t FROM j ORDER BY id;
SELECT d -> 'b' -> 1, d -> 'b' ->> 1, d -> 'b' ->> 2, d -> 'b' -> 2, d -> 'b' -> 3 FROM j WHERE id = 1;
SELECT id, d #> '{b,1}', d #>> '{b,1}', d #> '{c,d}', d #>> '{c,d}', d #> '{}', d #>> '{}', d #> '{3,1,0}', d #> '{b,-1}', d #>> ARRAY['c', 'd'], d #> '{b,x}' FROM j ORDER BY id;
SELECT d ->> 'x', d ->> 'y', d ->> 'z', d ->> 'ccc', d ->> '', d ->> 'é', d ->> 'bb' FROM j WHERE id = 10;
-- args: ["c", "d"]
SELECT d -> $1 ->> $2 FROM j ORDER BY id;
-- args: [1]
SELECT d -> $1::int FROM j ORDER BY id;
-- args: [["c", "d"]]
SELECT d #>> $1 FROM j ORDER BY id;
SELECT id FROM j WHERE d ->> 'a' = '1';
SELECT id FROM j WHERE (d ->> 'n')::integer > 5 AND d ->> 'n' IS NOT NULL;
SELECT (d ->> 'a')::integer + 1, (d -> 'c' ->> 'e')::boolean, (d ->> 'a')::numeric / 3, ((d -> 'c') ->> 'd') || '!' FROM j WHERE id IN (1, 4) ORDER BY id;
SELECT (d ->> 'b')::integer FROM j WHERE id = 1;
SELECT id FROM j WHERE d -> 'a' IS NULL ORDER BY id;
SELECT d ->> 'a' AS k, count(*) FROM j GROUP BY d ->> 'a' ORDER BY k;
SELECT id FROM j ORDER BY d ->> 'a', id;
SELECT t -> 'a' FROM j;
SELECT n ->> 'a' FROM j;
SELECT d -> p FROM j;
SELECT d -> 1.5 FROM j;
SELECT d #> 'nonsense' FROM j;
-- Asking.
SELECT id, d @> '{"a": 1}', d @> '[1]', d @> '{}', d @> '[]', d @> '5', d @> '"a"', d @> 'null', d @> '{"b": [2.5]}', d @> '{"c": {"e": true}}', d @> '[[4]]', d @> '[[[4]]]', d @> '[{"a": 2}]', '{"a": 1, "b": 2}' <@ d, d <@ d FROM j ORDER BY id;
SELECT id, d ? 'a', d ? 'c', d ? '', d ? 'nope', d ? t, d ?| ARRAY['x', 'a'], d ?& ARRAY['a', 'b'], d ?| '{}', d ?& '{}' FROM j ORDER BY id;
SELECT id FROM j WHERE d @> '{"a": 1}' AND NOT d ? 'z' ORDER BY id;
-- args: [{"a": 1}]
SELECT id FROM j WHERE d @> $1 ORDER BY id;
-- args: ["a"]
SELECT id FROM j WHERE d ? $1 ORDER BY id;
SELECT id, d = '{"a": 3, "bb": 1}', d = '[]', d <> '{}', d = '5.00', d = '"a"', d = d, d IS DISTINCT FROM 'null', d -> 'a' = '1', d IS NOT DISTINCT FROM NULL FROM j ORDER BY id;
SELECT '{"a": 1.0, "b": 2}'::jsonb = '{"b": 2.000, "a": 1}'::jsonb, '[1, 2]'::jsonb = '[2, 1]'::jsonb, '1'::jsonb = 'true'::jsonb, '"1"'::jsonb = '1'::jsonb, '100'::jsonb = '1e2'::jsonb, '0.0'::jsonb = '-0'::jsonb;
-- args: [{"a": 1, "b": [1, 2.5]}]
SELECT $1::jsonb = '{"b": [1.0, 2.50], "a": 1.00}';
SELECT id, jsonb_typeof(d), jsonb_typeof(d -> 'b'), jsonb_typeof(d -> 0) FROM j ORDER BY id;
SELECT jsonb_array_length(d), jsonb_array_length('[1, [2, 3]]') FROM j WHERE id IN (2, 3, 5) ORDER BY id;
SELECT jsonb_array_length(d) FROM j WHERE id = 1;
SELECT jsonb_array_length(d) FROM j WHERE id = 7;
SELECT CASE WHEN jsonb_typeof(d) = 'array' THEN jsonb_array_length(d) END FROM j ORDER BY id;
-- Changing.
SELECT id, d || '{"a": 9, "z": null}', d || '[7]', d || '1', '{"q": 1}' || d, d || d FROM j ORDER BY id;
SELECT id, d - 'a', d - 'nope', d - t FROM j WHERE id IN (1, 2, 3, 4, 5, 10) ORDER BY id;
SELECT id, d - 0, d - -1, d - 99 FROM j WHERE id IN (2, 3, 5) ORDER BY id;
SELECT d - 'a' FROM j WHERE id = 7;
SELECT d - 0 FROM j WHERE id = 1;
SELECT d - 0 FROM j WHERE id = 6;
SELECT id, d #- '{b,0}', d #- '{c,d}', d #- '{nope}', d #- '{}', d #- '{c,nope,e}' FROM j WHERE id IN (1, 3, 4, 10) ORDER BY id;
SELECT d #- '{0}', d #- '{3,1,0}', d #- '{-1}' FROM j WHERE id = 2;
SELECT d #- '{a}' FROM j WHERE id = 2;
SELECT d #- '{a}' FROM j WHERE id = 7;
SELECT id, jsonb_set(d, '{a}', '2'), jsonb_set(d, '{new}', '{"x": 1}'), jsonb_set(d, '{new}', '1', false), jsonb_set(d, '{c,d}', '"changed"'), jsonb_set(d, '{c,f}', '1'), jsonb_set(d, '{nope,f}', '1'), jsonb_set(d, '{b,0}', '0'), jsonb_set(d, '{b,-1}', '0'), jsonb_set(d, '{b,99}', '0'), jsonb_set(d, '{b,-99}', '0'), jsonb_set(d, '{b,99}', '0', false), jsonb_set(d, '{}', '1'), jsonb_set(d, '{a,x}', '1') FROM j WHERE id IN (1, 3, 4, 10) ORDER BY id;
SELECT jsonb_set(d, '{0}', '9'), jsonb_set(d, '{2,a}', '9'), jsonb_set(d, '{9}', 'null') FROM j WHERE id IN (2, 5) ORDER BY id;
SELECT jsonb_set(d, '{x}', '9') FROM j WHERE id = 2;
SELECT jsonb_set(d, '{x}', '9') FROM j WHERE id = 7;
SELECT jsonb_set(d, '{a}', NULL), jsonb_set(d, NULL, '1') FROM j WHERE id = 1;
SELECT jsonb_set(d, '{a}', to_jsonb(n + 1)), jsonb_set(d, ARRAY[t], to_jsonb(t)) FROM j WHERE id = 1;
SELECT jsonb_set(d, ARRAY['a', NULL], '1') FROM j WHERE id = 1;
-- args: [["a"], {"x": [1]}]
SELECT jsonb_set(d, $1, $2) FROM j WHERE id = 1;
SELECT jsonb_strip_nulls(d), jsonb_strip_nulls('{"a": null, "b": [null, {"c": null}]}') FROM j ORDER BY id;
UPDATE j SET d = jsonb_set(d, '{a}', to_jsonb((d ->> 'a')::integer + 1)) WHERE id = 1 RETURNING d;
UPDATE j SET d = d || jsonb_build_object('seen', n) WHERE id IN (1, 4) RETURNING id, d;
UPDATE j SET d = d - 'seen' WHERE id IN (1, 4) RETURNING d ? 'seen';
-- Making.
SELECT id, jsonb_build_object('t', t, 'n', n, 'f', f, 'p', p, 'd', d, 'ok', n > 0, 'null', NULL, 1, 2, n IS NULL, 3.50) FROM j ORDER BY id;
SELECT id, jsonb_build_array(t, n, f, p, d, n > 0, NULL, 'text', 1.50) FROM j ORDER BY id;
SELECT jsonb_build_object(), jsonb_build_array(), jsonb_build_object('a', jsonb_build_object('b', jsonb_build_array(1, 2)));
SELECT jsonb_build_object('at', '2030-01-02 03:04:05.600+00'::timestamptz, 'u', '00000000-0000-0000-0000-00000000000a'::uuid, 'b', '\x00ff'::bytea, 'list', ARRAY[1, NULL, 3], 'words', ARRAY['a', 'é"']);
SELECT jsonb_build_object('a', 1, 'a', 2, 'bb', 3, 'b', 4);
SELECT jsonb_build_object('a');
SELECT jsonb_build_object(NULL, 1);
SELECT jsonb_build_object(t, 1) FROM j WHERE id = 3;
SELECT to_jsonb(n), to_jsonb(t), to_jsonb(f), to_jsonb(p), to_jsonb(d), to_jsonb(n > 0), to_jsonb(1e300::double precision) FROM j WHERE id < 10 ORDER BY id;
SELECT to_jsonb('a');
-- args: ["a", 5]
SELECT jsonb_build_object('name', $1::text, 'count', $2::bigint);
SELECT jsonb_agg(n ORDER BY id), jsonb_agg(t ORDER BY id DESC), jsonb_agg(d ORDER BY id), jsonb_agg(p ORDER BY id) FILTER (WHERE id < 3) FROM j WHERE id < 10;
SELECT jsonb_agg(n) FROM j WHERE false;
SELECT jsonb_object_agg(id, t ORDER BY id), jsonb_object_agg(t, n ORDER BY id) FROM j WHERE id IN (1, 2, 4);
SELECT jsonb_object_agg(t, n) FROM j;
SELECT n, jsonb_agg(jsonb_build_object('id', id, 't', t) ORDER BY id) FROM j GROUP BY n ORDER BY n;
-- Casts.
SELECT (d -> 'a')::integer, (d -> 'a')::bigint, (d -> 'a')::smallint, (d -> 'a')::numeric, (d -> 'a')::double precision, (d -> 'c' -> 'e')::boolean, (d -> 'b' -> 1)::numeric, (d -> 'b' -> 1)::integer FROM j WHERE id = 1;
SELECT (d -> 'n')::integer FROM j WHERE id = 1;
SELECT (d -> 'c')::boolean FROM j WHERE id = 1;
SELECT '3000000000'::jsonb::integer;
SELECT t::jsonb FROM j WHERE id = 7;
SELECT t::jsonb FROM j WHERE id = 1;
SELECT d::text::jsonb = d FROM j ORDER BY id;
SELECT '{"a": }'::jsonb;
SELECT '{"a": 1'::text::jsonb;
SELECT '[1, 2'::jsonb;
SELECT 'nul'::jsonb;
SELECT ''::jsonb;
SELECT '01'::jsonb;
SELECT '"\u0000"'::jsonb;
SELECT ' [ 1 , 2 ] '::jsonb, '"\ud83d\ude00"'::jsonb, '1.50'::jsonb, 'false'::jsonb, 'null'::jsonb;
-- args: ["text", 5, 2.5, True, [1, None], {"a": {"b": []}}]
SELECT $1::jsonb, $2::jsonb, $3::jsonb, $4::jsonb, $5::jsonb, $6::jsonb;
-- args: [None]
SELECT $1::jsonb IS NULL;
INSERT INTO j (id, d) VALUES (20, to_jsonb(5)), (21, jsonb_build_array(1, 'a')) RETURNING d;
CREATE TABLE checked (id integer PRIMARY KEY, d jsonb NOT NULL DEFAULT jsonb_build_object('a', 1), CHECK (d ? 'a'), CHECK (jsonb_typeof(d) = 'object'));
INSERT INTO checked (id) VALUES (1) RETURNING d;
INSERT INTO checked VALUES (2, '{"b": 1}');
-- refused
SELECT ('null'::jsonb)::integer;
SELECT d - ARRAY['a'] FROM j;
SELECT id FROM j WHERE d < '5';
SELECT d, count(*) FROM j GROUP BY d;
SELECT d @? '$.a' FROM j;
SELECT d['a'] FROM j;
SELECT d @> '{}' || '{}' FROM j;
-- refused
SELECT jsonb_each(d) FROM j;
SELECT jsonb_pretty(d) FROM j;
