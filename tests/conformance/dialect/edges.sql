-- The ends of types, and letters that are written in a special way, on their way through lists and documents.
CREATE TABLE e (id bigint PRIMARY KEY, x text UNIQUE, p numeric, at timestamptz);
INSERT INTO e VALUES (9223372036854775807, 'a"b\c''d', 1e20, '9999-12-31 23:59:59.999999'), (-9223372036854775808, 'é😀', -0.001, '0001-01-01'), (0, '', 0.0, NULL);
-- args: [[9223372036854775807, -9223372036854775808]]
SELECT id FROM e WHERE id = ANY($1) ORDER BY id;
-- args: [["a\"b\\c'd", "é😀", "\n\t\x01\x7f\u2028"]]
SELECT id FROM e WHERE x = ANY($1) ORDER BY id;
-- args: [["\n\t\x01\x7f\u2028\U0010ffff\\u0041", "é"]]
INSERT INTO e (id, x) SELECT 5, u FROM unnest($1::text[]) AS u WHERE length(u) > 3 RETURNING x;
-- args: [["\n\t\x01\x7f\u2028\U0010ffff\\u0041", "é"]]
SELECT id, $1::text[], x = ANY($1::text[]), to_jsonb(x), jsonb_build_object(x, x) FROM e ORDER BY id;
-- args: [[Decimal("100000000000000000000.00"), Decimal("-0.0010"), Decimal("0")]]
SELECT id FROM e WHERE p = ANY($1) ORDER BY id;
-- args: [[datetime(9999, 12, 31, 23, 59, 59, 999998, tzinfo=UTC), datetime(1, 1, 1, 0, 0, 1, tzinfo=UTC)]]
SELECT id FROM e WHERE at = ANY($1) ORDER BY id;
-- args: [(1, 2)]
SELECT id FROM e WHERE id = ANY($1) ORDER BY id;
-- args: [{"a": 12345678901234567890, "b": 1e-7, "c": [1.0, 100.0]}]
SELECT $1::jsonb, $1::jsonb ->> 'b', $1::jsonb #>> '{c,0}', $1::jsonb ->> 'a';
SELECT id, id::text::jsonb, to_jsonb(id), to_jsonb(p), (to_jsonb(id))::bigint = id FROM e ORDER BY id;
SELECT left(x, 1), right(x, 1), reverse(x), length(x), octet_length(x), upper('ß') FROM e WHERE false;
SELECT string_agg(x, x ORDER BY id), jsonb_agg(x ORDER BY id), array_agg(x ORDER BY id) FROM e;
SELECT greatest(id, 0), least(p, 0), greatest(x, 'z') FROM e ORDER BY id;
SELECT extract(epoch FROM at), extract(epoch FROM at - '2000-01-01'), extract(day FROM at - '2000-01-01') FROM e ORDER BY id;
SELECT date_trunc('year', at), date_trunc('week', at), at::text, to_jsonb(at) FROM e ORDER BY id;
