-- Arrays: = ANY and <> ALL above all, then as values.
CREATE TABLE a (id bigint PRIMARY KEY, i integer, x text, v varchar(5), u uuid, p numeric, f double precision, ok boolean, at timestamptz, b bytea, tags text[], ns bigint[] DEFAULT '{}');
INSERT INTO a VALUES (1, 10, 'one', 'one', '00000000-0000-0000-0000-000000000001', 1.50, 1.5, true, '2030-01-01 00:00:00+00', '\x01', '{a,b}', '{1,2}'), (2, 20, 'two', 'two', '00000000-0000-0000-0000-000000000002', 2.0, 0.1, false, '2031-01-01 00:00:00+00', '\x02', '{}', '{NULL,3}'), (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO a (id, tags) VALUES (4, ARRAY['é', 'a b', 'NULL', NULL, '', '"', '\']) RETURNING tags, ns;
SELECT id, tags, ns FROM a ORDER BY id;
-- args: [[1, 3, 99]]
SELECT id FROM a WHERE id = ANY($1) ORDER BY id;
-- args: [[1, None]]
SELECT id, id = ANY($1), id <> ALL($1), NOT id = ANY($1) FROM a ORDER BY id;
-- args: [[]]
SELECT id, id = ANY($1), i = ANY($1::bigint[]), id <> ALL($1) FROM a ORDER BY id;
-- args: [None]
SELECT id, id = ANY($1), id <> ALL($1) FROM a ORDER BY id;
-- args: [[10, 20]]
SELECT id FROM a WHERE i = ANY($1) ORDER BY id;
-- args: [[10, 2**40]]
SELECT id FROM a WHERE i = ANY($1::bigint[]) ORDER BY id;
-- args: [[2**40]]
SELECT id FROM a WHERE i = ANY($1) ORDER BY id;
-- args: [["one", "é", "it's", None]]
SELECT id, x = ANY($1) FROM a ORDER BY id;
-- args: [["one"]]
SELECT id FROM a WHERE v = ANY($1) AND x = ANY($1::text[]) ORDER BY id;
-- args: [[UUID(int=1), UUID(int=9), None]]
SELECT id, u = ANY($1) FROM a ORDER BY id;
-- args: [[Decimal("1.5"), Decimal("2.00")]]
SELECT id, p = ANY($1), p <> ALL($1) FROM a ORDER BY id;
-- args: [[0.1, 2.5]]
SELECT id, f = ANY($1) FROM a ORDER BY id;
-- args: [[True]]
SELECT id, ok = ANY($1) FROM a ORDER BY id;
-- args: [[datetime(2030, 1, 1, tzinfo=UTC)]]
SELECT id, at = ANY($1) FROM a ORDER BY id;
-- args: [[b"\x01"]]
SELECT id, b = ANY($1) FROM a ORDER BY id;
-- args: [["x"]]
SELECT id FROM a WHERE id = ANY($1);
-- args: [5]
SELECT id FROM a WHERE id = ANY($1);
-- args: [[1, "x"]]
SELECT id FROM a WHERE id = ANY($1);
-- args: ["a"]
SELECT id FROM a WHERE $1 = ANY(tags) ORDER BY id;
-- args: [[1, 2], "one"]
UPDATE a SET x = $2 WHERE id = ANY($1) RETURNING id, x;
-- args: [[2]]
DELETE FROM a WHERE id = ANY($1::bigint[]) AND id <> ALL(ARRAY[3, 4]) RETURNING id;
SELECT id FROM a WHERE id = ANY (ARRAY[1, 2, NULL]) ORDER BY id;
SELECT id, id <> ALL (ARRAY[1, 2]), id = SOME (ARRAY[1]), x = ANY (ARRAY['one', 'x']), p = ANY (ARRAY[1.5, 2]), i = ANY (ARRAY[10, 1.5]) FROM a ORDER BY id;
SELECT id FROM a WHERE id = ANY ('{1,4}') ORDER BY id;
SELECT id FROM a WHERE id = ANY ('{1,4}'::bigint[]) ORDER BY id;
SELECT id FROM a WHERE id = ANY (ARRAY['1']);
SELECT id FROM a WHERE id = ANY (ARRAY[]::bigint[]);
SELECT id FROM a WHERE id = ANY (ARRAY[]);
SELECT id FROM a WHERE id = ANY (i);
SELECT id FROM a WHERE id = ANY ('nonsense');
SELECT id FROM a WHERE id = ANY (SELECT id FROM a WHERE i = 10);
SELECT id FROM a WHERE id <> ALL (SELECT id FROM a WHERE i = 10) ORDER BY id;
SELECT id, 'a' = ANY (tags), 1 = ANY (ns), id = ANY (ns), 'a' <> ALL (tags) FROM a ORDER BY id;
-- As values.
SELECT ARRAY[1, 2], ARRAY['a', NULL], ARRAY[1.50, 2], ARRAY[1.5::double precision], ARRAY[true, false], ARRAY[]::text[], ARRAY[1, 2]::bigint[], ARRAY['1', '2']::integer[], ARRAY[id, i] FROM a WHERE id = 1;
SELECT '{1,2,NULL}'::integer[], '{}'::text[], '{ a , "b c" , "x\"y\\", null }'::text[], '{1.50}'::numeric[], '{t,f}'::boolean[], '{1.5}'::double precision[];
SELECT '{1,x}'::integer[];
SELECT '{1,2'::integer[];
SELECT '{1,,2}'::integer[];
SELECT '{"a"b}'::text[];
SELECT ARRAY[1, 'x'];
SELECT ARRAY[1, true];
-- args: [[1, None, 3], ["a", "b"], [UUID(int=5)], [Decimal("1.50")], [b"\x00"], [True, None], [datetime(2030, 1, 1, tzinfo=UTC)], [1.5]]
SELECT $1::bigint[], $2::text[], $3::uuid[], $4::numeric[], $5::bytea[], $6::boolean[], $7::timestamptz[], $8::double precision[];
-- args: [[1, 2, 3]]
SELECT cardinality($1::bigint[]), array_length($1::bigint[], 1), array_length($1::bigint[], 2), array_length($1::bigint[], 0);
SELECT id, cardinality(tags), array_length(tags, 1), tags[1], tags[2], ns[1], ns[99], tags || 'x'::text, tags || ARRAY['y'], tags || '{z}', tags || NULL FROM a ORDER BY id;
SELECT id, array_append(ns, 5), array_remove(ns, 1), array_position(ns, 2), array_remove(tags, NULL), array_position(tags, 'b'), array_append(tags, NULL) FROM a ORDER BY id;
SELECT id, tags = ARRAY['a', 'b'], tags = '{}', tags <> ARRAY['a'], ns = '{1,2}', tags IS DISTINCT FROM '{a,b}', tags @> ARRAY['a'], ARRAY['a'] <@ tags, tags @> '{}' FROM a ORDER BY id;
UPDATE a SET tags = array_append(tags, 'new'), ns = ns || 7::bigint WHERE id IN (1, 3) RETURNING id, tags, ns;
-- args: [["x", None], [5, 6]]
INSERT INTO a (id, tags, ns) VALUES (9, $1, $2) RETURNING tags, ns;
SELECT array_agg(id ORDER BY id), array_agg(x ORDER BY id DESC), array_agg(p ORDER BY id), array_agg(u ORDER BY id), array_agg(ok ORDER BY id) FILTER (WHERE id < 3) FROM a;
SELECT array_agg(DISTINCT id ORDER BY id), array_agg(id) FILTER (WHERE false) FROM a;
SELECT x, array_agg(id ORDER BY id) FROM a GROUP BY x ORDER BY x;
CREATE TABLE checked (id integer PRIMARY KEY, kind text CHECK (kind = ANY (ARRAY['a', 'b'])), tags text[] NOT NULL DEFAULT ARRAY['x'], CHECK (cardinality(tags) < 3), CHECK ('bad' <> ALL (tags)));
INSERT INTO checked (id, kind) VALUES (1, 'a') RETURNING *;
INSERT INTO checked (id, kind) VALUES (2, 'c');
INSERT INTO checked (id, tags) VALUES (3, '{a,b,c}');
INSERT INTO checked (id, tags) VALUES (4, '{bad}');
ALTER TABLE checked ADD COLUMN more bigint[] NOT NULL DEFAULT '{}';
SELECT more FROM checked;
-- refused
SELECT ARRAY[[1], [2]];
SELECT ARRAY(SELECT 1);
SELECT id FROM a WHERE id > ANY (ARRAY[1]);
SELECT id FROM a WHERE id = ALL (ARRAY[1]);
SELECT id FROM a ORDER BY tags;
SELECT tags[1:2] FROM a;
-- refused
SELECT id FROM a WHERE p = ANY (ns);
CREATE TABLE q (a varchar[]);
CREATE TABLE q (a jsonb[]);
CREATE TABLE q (a text[] PRIMARY KEY);
SELECT id FROM a WHERE x LIKE ANY (ARRAY['o%']);
-- refused
SELECT '[0:1]={1,2}'::integer[];
-- As rows.
-- args: [[3, 1, None, 1]]
SELECT id FROM unnest($1::bigint[]) AS id ORDER BY id;
-- args: [[1, 9]]
SELECT a.id, u.key FROM unnest($1::bigint[]) AS u (key) LEFT JOIN a ON a.id = u.key ORDER BY u.key;
-- args: [["x", "é", None], [Decimal("1.50")], [UUID(int=1), None], [b"\x00"], [True], [datetime(2030, 1, 1, tzinfo=UTC)]]
SELECT u.x, u.p, u.u, u.b, u.ok, u.at FROM unnest($1::text[], $2::numeric[], $3::uuid[], $4::bytea[], $5::boolean[], $6::timestamptz[]) AS u (x, p, u, b, ok, at) ORDER BY u.x;
-- args: [[21, 22], ["p", "q"]]
INSERT INTO a (id, x) SELECT u.id, u.x FROM unnest($1::bigint[], $2::text[]) AS u (id, x) RETURNING id, x;
-- args: [[21, 22, 21]]
SELECT unnest, count(*) FROM unnest($1::bigint[]) GROUP BY unnest ORDER BY unnest;
-- args: [None]
SELECT count(*) FROM unnest($1::bigint[]) AS n;
-- args: [[Decimal("1.0"), Decimal("10"), Decimal("9")]]
SELECT p FROM unnest($1::numeric[]) AS p WHERE p > 1 ORDER BY p;
SELECT * FROM unnest(ARRAY[1, 2], ARRAY['a']) AS u (n, x) ORDER BY n;
SELECT id FROM a WHERE id IN (SELECT n FROM unnest(ARRAY[1, 4]) AS n) ORDER BY id;
SELECT * FROM unnest(5) AS n;
SELECT * FROM unnest(ARRAY[1]) AS u (a, b);
SELECT unnest(tags) FROM a;
SELECT a.id, tag FROM a CROSS JOIN unnest(a.tags) AS tag;
SELECT * FROM unnest(ARRAY[1]) WITH ORDINALITY AS u (a, n);
-- refused
SELECT * FROM unnest(ARRAY[1.5::double precision]) AS d;
-- What goes together with nothing.
SELECT array_agg(DISTINCT id ORDER BY x) FROM a;
SELECT lower(x) FILTER (WHERE true) FROM a;
SELECT sum(id, i) FROM a;
SELECT tags || id FROM a;
SELECT * FROM unnest(ARRAY[]) AS n;
SELECT (ARRAY['\x01'::bytea, NULL])[1], (ARRAY['00000000-0000-0000-0000-000000000001'::uuid])[1], (ARRAY[1.50])[1], ('{5}'::bigint[])[1];
SELECT - interval '1 day' < interval '0 days', abs(1.5), length(5);
-- refused
SELECT jsonb_agg(DISTINCT id ORDER BY id) FROM a;
SELECT $1 = ANY($2);
-- refused
SELECT id FROM a WHERE to_jsonb(id) = ANY($1);
SELECT cardinality($1);
-- refused
SELECT array_remove(ARRAY[1.5], 1.5);
SELECT '{2030-01-01}'::timestamptz[];
SELECT * FROM unnest(ARRAY[1], ARRAY[2]) AS u;
SELECT * FROM unnest($1) AS n;
SELECT concat(ARRAY[1]);
-- refused
SELECT jsonb_build_object('a', ARRAY[1.5]);
SELECT extract(epoch FROM date_trunc('hour', interval '90 minutes'));
SELECT abs('5');
-- Places count from one, whatever the array is made of.
SELECT (ARRAY[10,20] || ARRAY[30])[1], (ARRAY[10,20] || 30)[3], (ARRAY[10,20])[2], ('{5,6}'::bigint[])[1], (array_append(ARRAY[1], 2))[2];
SELECT ((SELECT ARRAY[7,8]))[1], (SELECT ARRAY[7,8])[2], (CASE WHEN true THEN ARRAY[1,2] END)[2], (coalesce(NULL, ARRAY[7,8]))[1], (ARRAY[1,2])[0], (ARRAY[1,2])[3];
CREATE TABLE subscripted (id bigint PRIMARY KEY, a bigint[], n bigint);
INSERT INTO subscripted VALUES (1, '{10,20}', 0), (2, '{30}', 0);
UPDATE subscripted SET n = (a || ARRAY[99::bigint])[2] RETURNING id, n, a[1], (a)[1], subscripted.a[2], (subscripted.a || a)[1];
SELECT id FROM subscripted WHERE (a || ARRAY[1::bigint])[1] = 10 AND (a || a)[1] = a[1];
SELECT (array_agg(id ORDER BY id DESC))[1] FROM subscripted;
SELECT (ARRAY[1,2])[1.5];
SELECT (ARRAY[1,2])[3000000000];
SELECT (ARRAY[1,2])['1'];
SELECT (ARRAY[1,2])[1 + 1];
-- Types of arrays in PostgreSQL's other spellings.
SELECT CAST('{5}' AS text ARRAY);
SELECT '{5}'::text ARRAY;
SELECT '{5}'::integer ARRAY[4];
SELECT '{5}'::integer[4];
SELECT CAST('{5}' AS integer[4]);
CREATE TABLE spelled (a integer ARRAY);
INSERT INTO spelled VALUES ('{1}') RETURNING a;
CREATE TABLE misspelled (a integer ARRAY, b bigint[]);
SELECT ARRAY 'x';
SELECT 2 * ARRAY 2;
CREATE TABLE unspelled (a ARRAY);
-- Elements have the size of their array: a change fits them or fails, an explicit cast cuts them off.
CREATE TABLE sized (id integer PRIMARY KEY, words varchar(3)[] NOT NULL DEFAULT '{ab}', prices numeric(5, 2)[]);
INSERT INTO sized (id) VALUES (1) RETURNING words, prices;
INSERT INTO sized VALUES (2, '{a,bcd,NULL}', '{1.005,NULL,-2}'), (3, ARRAY['x', 'abc   '], ARRAY[2.345]) RETURNING *;
-- args: [["ab", None], [Decimal("1.239")]]
INSERT INTO sized VALUES (4, $1, $2) RETURNING *;
-- fails
INSERT INTO sized VALUES (5, '{abcd}', NULL);
-- fails
INSERT INTO sized VALUES (5, '{}', '{1000}');
-- args: [["abcd"]]
-- fails
INSERT INTO sized VALUES (5, $1, NULL);
UPDATE sized SET words = array_append(words, 'zz'), prices = array_append(prices, 3.14159) WHERE id = 2 RETURNING *;
-- fails
UPDATE sized SET words = words || 'abcd'::text WHERE id = 2;
SELECT ARRAY['abcdef']::varchar(3)[], '{abcdef,g}'::varchar(2)[], ARRAY[1.555, 2]::numeric(4, 1)[], words::varchar(1)[], prices::numeric(4, 1)[] FROM sized ORDER BY id;
SELECT words[1] || 'long', 'ab' = ANY(words), unnest(words) FROM sized ORDER BY id, 3;
ALTER TABLE sized ADD COLUMN further varchar(2)[], ALTER COLUMN prices TYPE numeric(10, 1)[];
SELECT * FROM sized ORDER BY id;
CREATE TABLE sized_too AS SELECT words, further FROM sized;
-- fails
INSERT INTO sized_too VALUES ('{abcd}', NULL);
-- refused
CREATE TABLE rounded (at timestamp(0)[]);

-- As PostgreSQL writes them.
SELECT ARRAY[1, NULL, -3]::text, ARRAY['a', 'b c', '', NULL, 'null', 'x"y', 'z\w', '{', ',', 'é', E'a\tb']::text, ARRAY[]::integer[]::text;
SELECT ARRAY[1.50, 2]::text, ARRAY[true, false, NULL]::text, ARRAY['2024-01-02'::date]::text, ARRAY['2024-01-02 03:04:05.5+00'::timestamptz]::text;
SELECT ARRAY['a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid]::text, ARRAY['\x00ff'::bytea]::text, ARRAY[1, 1.5, 1e300]::double precision[]::text;
SELECT ARRAY['1 mon 2 days'::interval, NULL]::text, ARRAY['10:00'::time]::text, ARRAY[1, 2]::varchar(3);
SELECT 'x' || ARRAY[1, 2]::text, concat(ARRAY[1], ARRAY['a b']), format('%s|%L', ARRAY[1], ARRAY['a']);
