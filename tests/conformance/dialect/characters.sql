-- Texts of fixed length: filled with blanks, which compare as if they were not there.
CREATE TABLE c (id integer PRIMARY KEY, a char(3), b char(5) DEFAULT 'x', d char, e character(2) NOT NULL DEFAULT '', v varchar(5), t text);
INSERT INTO c VALUES (1, 'ab', 'ab', 'y', 'de', 'ab', 'ab'), (2, 'abc', 'ABC', NULL, 'é', 'ab ', 'ab '), (3, '', '  ', ' ', '😀a', '', ''), (4, NULL, NULL, NULL, 'zz', NULL, NULL) RETURNING *;
INSERT INTO c (id, a) VALUES (5, 'ab   ') RETURNING a, b, d, e;
-- fails
INSERT INTO c (id, a) VALUES (6, 'abcd');
-- fails
INSERT INTO c (id, a) SELECT 6, 'ab d'::text;
-- fails
INSERT INTO c (id, a) VALUES (6, 12345);
-- args: ["q"]
INSERT INTO c (id, a) VALUES (6, $1) RETURNING a;
-- args: ["abcd"]
-- fails
INSERT INTO c (id, a) VALUES (7, $1);
-- args: ["ab    "]
UPDATE c SET b = $1 WHERE id = 6 RETURNING b;
UPDATE c SET b = a WHERE id = 5 RETURNING b;
UPDATE c SET t = b, v = a WHERE id = 6 RETURNING t, v;
SELECT id, length(a), char_length(b), octet_length(a), octet_length(e), bit_length(d), length(d) FROM c ORDER BY id;
SELECT id FROM c WHERE a = 'ab' ORDER BY id;
SELECT id FROM c WHERE a = 'ab    ' ORDER BY id;
-- args: ["ab "]
SELECT id FROM c WHERE a = $1 ORDER BY id;
-- args: ["ab "]
SELECT id FROM c WHERE a = $1::text ORDER BY id;
SELECT id FROM c WHERE a = b ORDER BY id;
SELECT id FROM c WHERE a = v ORDER BY id;
SELECT id FROM c WHERE a = t ORDER BY id;
SELECT id, a < 'abb', a > b, a <> b, a IS DISTINCT FROM b, a BETWEEN '' AND 'ab' FROM c ORDER BY id;
SELECT id FROM c WHERE a IN ('ab', 'q  ') ORDER BY id;
SELECT id FROM c WHERE a NOT IN ('ab') ORDER BY id;
SELECT id FROM c WHERE (a, e) = ('ab', 'de') ORDER BY id;
SELECT id FROM c WHERE a IN (SELECT b FROM c) ORDER BY id;
SELECT id FROM c WHERE b IN (SELECT t FROM c) ORDER BY id;
SELECT id, a LIKE 'ab', a LIKE 'ab%', a LIKE 'ab_', a ILIKE 'AB ', a NOT LIKE 'a%', d LIKE '_' FROM c ORDER BY id;
SELECT id, a || 'x', 'x' || a || b, a || NULL FROM c ORDER BY id;
SELECT id, lower(b), upper(a), initcap(a), left(b, 4), right(b, 4), substring(b from 2), trim(b), replace(b, ' ', '_'), position(' ' in b), reverse(a), repeat(d, 2), md5(a), concat(a, b), concat_ws('-', a, d), format('%s|', b) FROM c ORDER BY id;
SELECT id, a::text || '|', b::varchar || '|', a::char(5), b::char(2), b::varchar(2), t::char(4), v::char(1), a::text::char(2) FROM c ORDER BY id;
SELECT 'abc'::char(2), 'a'::char(3), 'abc'::char(5) || '|', 'ab '::char(3) = 'ab', CAST('x' AS char), 'abc'::character(4), ''::char(2);
SELECT id, coalesce(a, 'none'), coalesce(a, t), coalesce(b, a), nullif(a, 'ab'), greatest(a, b), least(a, 'abb'), CASE WHEN id > 2 THEN a ELSE b END FROM c ORDER BY id;
SELECT id, to_jsonb(a), jsonb_build_object('k', a, b, 1), jsonb_build_array(a, d), to_json(b), json_build_object(a, b) FROM c WHERE id IN (1, 2) ORDER BY id;
SELECT a, id FROM c ORDER BY a, id;
SELECT b, id FROM c ORDER BY b DESC NULLS LAST, id;
SELECT a, count(*) FROM c GROUP BY a ORDER BY a;
SELECT count(DISTINCT a), count(a), min(a), max(a), min(b), max(d) FROM c;
SELECT DISTINCT a FROM c ORDER BY a;
SELECT a FROM c UNION SELECT a FROM c ORDER BY 1;
SELECT a FROM c WHERE id = 1 UNION SELECT b FROM c WHERE id = 1;
SELECT a FROM c WHERE id < 3 EXCEPT SELECT b FROM c;
SELECT a FROM c WHERE id < 3 INTERSECT SELECT a FROM c ORDER BY 1;
SELECT a FROM c WHERE id = 1 UNION ALL SELECT t FROM c WHERE id = 2;
SELECT string_agg(a, ',' ORDER BY id), string_agg(DISTINCT a, ',' ORDER BY a) FROM c;
SELECT jsonb_agg(a ORDER BY id), jsonb_object_agg(id, b ORDER BY id) FROM c;
SELECT id, row_number() OVER (PARTITION BY a ORDER BY id), rank() OVER (ORDER BY a), lag(a) OVER (ORDER BY id), first_value(b) OVER (ORDER BY id) FROM c ORDER BY id;
SELECT x.id, y.id FROM c AS x JOIN c AS y ON x.a = y.b ORDER BY 1, 2;
SELECT id, (SELECT max(a) FROM c AS i WHERE i.a < c.a) AS below FROM c ORDER BY id;
SELECT s.a, s.a = 'ab' AS same FROM (SELECT a FROM c UNION ALL SELECT 'ab') AS s ORDER BY s.a, s.a::text || length(s.a), octet_length(s.a);
WITH s AS (SELECT a, b FROM c) SELECT a, b, a = b AS same FROM s WHERE a IS NOT NULL ORDER BY a, b;
SELECT * FROM (VALUES ('a'::char(3)), ('a '), ('b')) AS v (x) ORDER BY x;
SELECT a IS NULL, a IS NOT NULL, a = NULL FROM c WHERE id = 1;
SELECT c.id FROM c ORDER BY CASE WHEN a = 'ab' THEN 0 ELSE 1 END, id;
CREATE TABLE k (code char(4) PRIMARY KEY, other char(4) UNIQUE, n integer CHECK (n > 0), CHECK (other <> 'no'));
INSERT INTO k VALUES ('a', 'x', 1), ('b', 'y', 2);
-- fails
INSERT INTO k VALUES ('a  ', 'z', 1);
-- fails
INSERT INTO k VALUES ('c', 'no', 1);
-- fails
INSERT INTO k VALUES (NULL, 'w', 1);
INSERT INTO k VALUES ('a', 'q', 5) ON CONFLICT (code) DO UPDATE SET n = k.n + excluded.n, other = excluded.other RETURNING *;
INSERT INTO k VALUES ('a ', 'q', 5), ('e', 'e', 6) ON CONFLICT DO NOTHING RETURNING code;
CREATE TABLE ref (id integer PRIMARY KEY, code char(4) REFERENCES k ON UPDATE CASCADE);
INSERT INTO ref VALUES (1, 'a'), (2, 'b '), (3, NULL);
-- fails
INSERT INTO ref VALUES (4, 'zz');
UPDATE k SET code = 'new' WHERE code = 'b';
SELECT * FROM ref ORDER BY id;
DELETE FROM k WHERE code = 'e   ' RETURNING *;
CREATE INDEX ON c (a);
CREATE INDEX ON c (b, a DESC) WHERE a = 'ab';
ALTER TABLE c ADD COLUMN f char(2) NOT NULL DEFAULT 'q';
ALTER TABLE c ALTER COLUMN f TYPE char(4);
ALTER TABLE c ALTER COLUMN f DROP DEFAULT;
ALTER TABLE c ALTER COLUMN f TYPE text;
SELECT f || '|' FROM c WHERE id = 1;
ALTER TABLE c ALTER COLUMN f TYPE char(3) USING upper(f);
SELECT f || '|', f FROM c WHERE id = 1;
ALTER TABLE c ALTER COLUMN t TYPE char(6);
SELECT t, length(t) FROM c ORDER BY id;
CREATE TABLE copied AS SELECT a, b, a || '!' AS s FROM c;
SELECT * FROM copied ORDER BY a, b;
CREATE VIEW seen AS SELECT a, b FROM c WHERE a = 'ab';
SELECT * FROM seen ORDER BY b;
-- fails
CREATE TABLE z (a char(0));
-- fails
CREATE TABLE z (a char(3) DEFAULT 'four');
INSERT INTO z VALUES (DEFAULT);
-- refused
CREATE TABLE y (a char(3)[]);
CREATE TABLE y (id integer, a bpchar UNIQUE);
INSERT INTO y VALUES (1, 'a'), (2, 'b  '), (3, NULL) RETURNING a, length(a), octet_length(a);
-- fails
INSERT INTO y VALUES (4, 'a  ');
SELECT id, a = 'b' AS same, a || '|', 'x '::bpchar, a::char(3), 'q '::bpchar = 'q' AS also FROM y ORDER BY id;
-- refused
SELECT array_agg(a) FROM c;
-- refused
SELECT a ~ 'b' FROM c;
-- refused
SELECT id FROM c WHERE a = ANY ('{a}'::char(1)[]);
SELECT id FROM c WHERE a = ANY (ARRAY['q'::char(1), 'ab']) ORDER BY id;
SELECT id FROM c WHERE a <> ALL (ARRAY[b, 'ab', 'q']) ORDER BY id;
-- args: [["q", "ab"]]
SELECT id FROM c WHERE a = ANY ($1::text[]) ORDER BY id;
