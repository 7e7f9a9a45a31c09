-- Functions on text and on numbers, over the edges of their arguments.
CREATE TABLE w (id integer PRIMARY KEY, x text, v varchar(8), n integer, b bytea, d double precision, p numeric, s smallint, big bigint);
INSERT INTO w VALUES (1, 'Hello', 'abc', 2, '\x00ff', 1.5, 2.567, 3, 40), (2, '', '', 0, '', -2.5, -2.567, -3, -40), (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL), (4, 'é€😀x', '  ab ', -1, '\x61', 0, 0.00, 0, 0), (5, 'a,b,,c', 'xxaxx', 10, '\x', 1e20, 12345678901234567890.5, 7, 9007199254740993);
SELECT position('l' in x), strpos(x, 'lo'), strpos(x, ''), strpos(x, v), position(v in x) FROM w ORDER BY id;
SELECT substring(x from 2 for 3), substring(x from 2), substring(x for 2), substring(x, 2, 3), substr(x, 0, 3), substr(x, -1), substr(x, -1, 3), substr(x, n), substr(x, n, 2) FROM w ORDER BY id;
SELECT substr(x, 1, -1) FROM w;
SELECT substr(x, 2147483647, 5), substr(x, 3, 2147483647) FROM w ORDER BY id;
SELECT left(x, 2), left(x, -2), left(x, n), right(x, 2), right(x, -2), right(x, n), left(x, 0), right(x, 0), right(x, 100) FROM w ORDER BY id;
SELECT trim(v), trim(both from v), trim(leading from v), trim(trailing from v), trim(both 'x' from v), trim('x' from v), btrim(v), btrim(v, 'ax'), ltrim(v), ltrim(v, ' a'), rtrim(v), rtrim(v, 'x'), trim(v, 'x'), btrim(v, '') FROM w ORDER BY id;
SELECT replace(x, 'l', 'LL'), replace(x, '', 'z'), replace(x, 'é', ''), replace(v, 'x', x) FROM w ORDER BY id;
SELECT concat(x, '-', v), concat(x, n, d, p, s, big), concat(id = 1, NULL, b, 2.50), concat(NULL, NULL), concat_ws(',', x, n, NULL, v), concat_ws(NULL, x, 'a'), concat_ws('-', NULL) FROM w ORDER BY id;
SELECT starts_with(x, 'He'), starts_with(x, ''), starts_with(x, v), md5(x), md5('') FROM w ORDER BY id;
SELECT reverse(x), repeat(v, 3), repeat(v, 0), repeat(v, -1), lpad(x, 8), lpad(x, 3), lpad(x, 8, 'ab'), lpad(x, 8, ''), rpad(x, 8, 'ab'), rpad(x, -1), rpad(x, n) FROM w ORDER BY id;
SELECT split_part(x, ',', 1), split_part(x, ',', 3), split_part(x, ',', -1), split_part(x, ',', 9), split_part(x, '', 1), split_part(x, '', 2), split_part(x, 'l', -2) FROM w ORDER BY id;
SELECT split_part(x, ',', 0) FROM w;
SELECT length(x), char_length(x), character_length(v), octet_length(x), octet_length(b) FROM w ORDER BY id;
SELECT x ILIKE 'h%', x NOT ILIKE '%O', v ILIKE 'A_C', x ILIKE '', 'a%' ILIKE 'A\%', 'ab' ILIKE 'A!B' ESCAPE '!' FROM w WHERE id <> 4 ORDER BY id;
-- args: ["AB%"]
SELECT id FROM w WHERE v ILIKE $1;
-- args: ["l", 3]
SELECT strpos(x, $1), left(x, $2) FROM w ORDER BY id;
SELECT left(n, 1) FROM w;
SELECT left(x, big) FROM w;
SELECT left(x) FROM w;
SELECT replace(x, 'a') FROM w;
SELECT ltrim(n) FROM w;
SELECT id FROM w WHERE n ILIKE 'a';
SELECT starts_with(id, 'a') FROM w;
SELECT substring(x from 'l.') FROM w;
SELECT substr(b, 1) FROM w;
SELECT md5(b) FROM w;
SELECT initcap(x) FROM w;
SELECT overlay(x placing 'a' from 1) FROM w;
SELECT regexp_replace(x, 'a', 'b') FROM w;
SELECT to_char(n, '999') FROM w;
SELECT format('%s', x) FROM w;
-- Text of other types.
SELECT d::text, b IS NULL, (d * 3)::text, (1 / 3.0::double precision)::text, 1e15::double precision::text, 1e-5::double precision::text, 0.0001::double precision::text, 123456789012345.678::double precision::text FROM w ORDER BY id;
SELECT 1e14::double precision::text, 123456.789::double precision::text, -1e100::double precision::text, 5e-324::double precision::text, 1.7976931348623157e308::double precision::text, 100::double precision::text, (-0.5)::double precision::text;
-- Numbers.
SELECT floor(d), ceil(d), ceiling(d), round(d), trunc(d), sign(d), floor(p), ceil(p), ceiling(p), round(p), trunc(p), sign(p) FROM w ORDER BY id;
SELECT floor(n), ceil(s), round(big), trunc(n), sign(n), sign(big), floor(5), trunc(7) FROM w WHERE id < 5 ORDER BY id;
SELECT trunc(p, 2), trunc(p, 0), trunc(p, -1), trunc(2.999, 5), trunc(-0.5), trunc(1234.5, -2), trunc(n, 1) FROM w ORDER BY id;
SELECT mod(n, 3), mod(big, 7), mod(p, 2), mod(-7, 3), mod(7, -3), mod(7.5, 2), mod(s, s) FROM w WHERE id IN (1, 5) ORDER BY id;
SELECT mod(n, 0) FROM w;
SELECT mod(d, 2) FROM w;
SELECT trunc(d, 2) FROM w;
SELECT power(2, 10), power(-3, 3), power(n, 2), power(n, 0), sqrt(16), sqrt(2::double precision), sqrt(n) FROM w WHERE id IN (1, 3, 5) ORDER BY id;
SELECT sqrt(-1);
SELECT power(2, 0.5);
SELECT power(2::double precision, 0.5::double precision);
SELECT power(2.0, 3);
SELECT sqrt(2.0);
SELECT floor('1.5');
SELECT greatest(n, 5), least(n, 5), greatest(x, v), least(x, v, 'b'), greatest(p, 2), least(p, d), greatest(1, 2.5, 3), greatest(NULL, NULL, 1), greatest(n, big, s), least(1.0, 1.00), greatest(1.00, 1.0), greatest(NULL, NULL) FROM w ORDER BY id;
SELECT greatest(id = 1, false), least(b, '\x50'), greatest('a', 'b'), greatest('2', 10) FROM w ORDER BY id;
SELECT greatest(1, 'x');
SELECT greatest(x, 1) FROM w;
-- Chance: what is random is compared by what is certain about it.
SELECT floor(random() * 16) >= 0 AND floor(random() * 16) < 16, floor(random() * 16)::integer < 16, floor(random() * 16)::bigint >= 0, (random() * 100)::integer <= 100, trunc(random() * 10) < 10;
SELECT id FROM w WHERE floor(random() * 1) = 0 ORDER BY id;
INSERT INTO w (id, n) VALUES (100 + floor(random() * 1)::integer, floor(random() * 1)) RETURNING id, n;
UPDATE w SET n = floor(random() * 1)::int WHERE id = 100 RETURNING n;
SELECT count(*) FROM w WHERE id = floor(random())::integer + 1;
-- Defaults and checks.
CREATE TABLE defaulted (id integer PRIMARY KEY, shard integer DEFAULT floor(random() * 1)::integer, code text DEFAULT left(md5('a'), 8), low text CHECK (low = lower(low) AND length(trim(low)) > 0), n integer CHECK (n = greatest(n, 0)));
INSERT INTO defaulted (id) VALUES (1) RETURNING *;
INSERT INTO defaulted (id, low, n) VALUES (2, 'abc', 5);
INSERT INTO defaulted (id, low) VALUES (3, 'Abc');
INSERT INTO defaulted (id, low) VALUES (4, '  ');
INSERT INTO defaulted (id, n) VALUES (5, -1);
-- Aggregates.
SELECT string_agg(x, ',' ORDER BY id), string_agg(v, '' ORDER BY id DESC), string_agg(x, NULL ORDER BY id), string_agg(id::text, x ORDER BY id) FROM w;
SELECT string_agg(x, ', ' ORDER BY x DESC NULLS LAST, id) FROM w WHERE id < 3;
SELECT string_agg(x, ',') FROM w WHERE false;
SELECT n > 1 AS k, string_agg(x, ',' ORDER BY id), count(*) FROM w GROUP BY n > 1 ORDER BY k;
SELECT bool_and(n > 0), bool_or(n > 5), every(id > 0), bool_and(n > 100), bool_or(NULL::boolean) FROM w;
SELECT count(*) FILTER (WHERE n > 0), sum(n) FILTER (WHERE n > 0), count(x) FILTER (WHERE x <> ''), avg(p) FILTER (WHERE id = 1), max(x) FILTER (WHERE false), string_agg(x, ',' ORDER BY id) FILTER (WHERE id < 3), bool_or(n > 1) FILTER (WHERE id < 5) FROM w;
SELECT count(*) FILTER (WHERE n > 0) AS positive, n IS NULL AS k FROM w GROUP BY n IS NULL HAVING count(*) FILTER (WHERE id > 0) > 0 ORDER BY positive, k;
SELECT sum(big) FILTER (WHERE n > 0), min(d) FILTER (WHERE d > 0), sum(d) FILTER (WHERE id < 3) FROM w;
SELECT count(*) FILTER (WHERE n) FROM w;
SELECT string_agg(n, ',') FROM w;
SELECT bool_and(n) FROM w;
SELECT id FROM w WHERE string_agg(x, ',') = '';
SELECT string_agg(DISTINCT x, ',') FROM w;
SELECT count(*) FILTER (WHERE EXISTS (SELECT 1)) FROM w;
-- LIKE as a function has its arguments in LIKE's own order.
-- refused
SELECT like('abc', 'a%');
-- refused
SELECT 1 WHERE NOT like('abc', 'a%');
SELECT 'abc' LIKE ('a%'), 'abc' NOT LIKE ('b%');
-- Text is joined to what is written as text.
CREATE TABLE joined (id bigint PRIMARY KEY, i integer, s smallint, p numeric(6,2), d double precision, ok boolean, v varchar(3), u uuid, at timestamptz);
INSERT INTO joined VALUES (1, -3, 2, 1.50, 0.1, true, 'ab', '00000000-0000-0000-0000-00000000000a', '2030-01-02 03:04:05.5+00'), (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
SELECT 'n' || i, i || 'n', v || id, 'n' || s, p || v, 'd' || d, ok || 'x', u || '', 'at ' || at FROM joined ORDER BY id;
SELECT 'n' || i + 1, i + 1 || 'n', 'a' || 1 = 'a1', 'a' || 2 * 3, 'a' || -1, -i || 'x', 'a' || i || 'b' || id, 'n' || 1.50, NULL || 5 FROM joined ORDER BY id;
UPDATE joined SET v = 'n' || id RETURNING v;
SELECT 1 || 2;
SELECT i || id FROM joined;
-- refused
SELECT 'a' || '\x01'::bytea;
-- Distinct texts by a separator.
SELECT string_agg(DISTINCT v, ',' ORDER BY v), string_agg(DISTINCT 'x' || ok, ', ) ' ORDER BY 'x' || ok DESC NULLS LAST), string_agg(DISTINCT v, ',' ORDER BY v) FILTER (WHERE id > 1) FROM joined;
SELECT string_agg(DISTINCT x, '; ' ORDER BY x), string_agg(DISTINCT x, '' ORDER BY x DESC) FROM (VALUES ('b'), ('a'), (NULL), ('b')) AS s (x);
-- args: ["; "]
SELECT string_agg(DISTINCT v, $1 ORDER BY v) FROM joined;
SELECT string_agg(DISTINCT v, ',' ORDER BY v) FROM joined WHERE false;
SELECT string_agg(DISTINCT v, ',' ORDER BY id) FROM joined;
-- refused
SELECT string_agg(DISTINCT v, v ORDER BY v) FROM joined;

-- Names in statements that are made of texts: key words of each kind, and what needs quotes.
SELECT quote_ident('a'), quote_ident('A'), quote_ident('select'), quote_ident('int'), quote_ident('coalesce'), quote_ident('left'), quote_ident('abort');
SELECT quote_ident('a b'), quote_ident(''), quote_ident('é'), quote_ident('1a'), quote_ident('a$'), quote_ident('a"b'), quote_ident('name'), quote_ident('user');
SELECT quote_ident('timestamp'), quote_ident('value'), quote_ident('values'), quote_ident('isnull'), quote_ident('between'), quote_ident('setof'), quote_ident(NULL);
SELECT format('%I.%I %-10I|%10I', 'a', 'B"x', 'or', 'z');
-- fails
SELECT format('%I', NULL);
