-- Expressions over a small table with every type, NULLs and edges included.
CREATE TABLE t (id bigint PRIMARY KEY, s smallint, i integer, n bigint, d double precision, p numeric, q numeric(10,2),
  x text, v varchar(5), ok boolean, b bytea, at timestamptz, u uuid, j jsonb);
INSERT INTO t VALUES (1, 1, 10, 100, 1.5, 1.50, 9.99, 'abc', 'ab', true, '\x00ff', '2030-01-02 03:04:05.678+00', '00000000-0000-0000-0000-000000000001', '{"a": [1, 2.5, null, "x"]}');
INSERT INTO t VALUES (2, -32768, -2147483648, -9223372036854775808, -0.25, -1.5, -0.01, 'ABC', 'Abcde', false, '', '1999-12-31T23:59:59Z', 'ffffffff-ffff-ffff-ffff-ffffffffffff', '[]');
INSERT INTO t VALUES (3, 32767, 2147483647, 9223372036854775807, 1e308, 12345678901234567890.123456789, 99999999.99, 'é€😀', '', NULL, NULL, NULL, NULL, '{}');
INSERT INTO t (id) VALUES (4);
SELECT * FROM t ORDER BY id;
SELECT id, s + 1, i - 1, n + 0, -d, s * 2, i * i FROM t WHERE id = 1;
SELECT s + s FROM t WHERE id = 3;
SELECT i + 1 FROM t WHERE id = 3;
SELECT i + 1 FROM t WHERE id = 3 ORDER BY 1;
SELECT n + 1 FROM t WHERE id = 3;
SELECT n - 1 FROM t WHERE id = 2;
SELECT n + 1 - 10000 FROM t WHERE id = 3;
SELECT (n + 1) / 2 FROM t WHERE id = 3;
SELECT n * 2 FROM t WHERE id = 3;
SELECT n * 3 FROM t WHERE id = 2;
SELECT i * 2 FROM t WHERE id = 3;
SELECT i::bigint * 2 FROM t WHERE id = 3;
SELECT i + n FROM t WHERE id = 1;
SELECT -i FROM t WHERE id = 2;
SELECT -n FROM t WHERE id = 2;
SELECT -s FROM t WHERE id = 2;
SELECT abs(i) FROM t WHERE id = 2;
SELECT abs(n) FROM t WHERE id = 2;
SELECT abs(i), abs(d), abs(p), abs(q), abs(s) FROM t WHERE id IN (1, 4);
SELECT 7 / 2, -7 / 2, 7 / -2, 7 % 3, -7 % 3, 7 % -3;
SELECT i / s, i % s, n / i FROM t WHERE id = 1;
SELECT n / -1 FROM t WHERE id = 2;
SELECT i / -1 FROM t WHERE id = 2;
SELECT n % -1 FROM t WHERE id = 2;
SELECT s / (-1)::smallint FROM t WHERE id = 2;
SELECT i / 0 FROM t;
SELECT i % 0 FROM t;
SELECT i / (s - 1) FROM t WHERE id = 1;
SELECT d / 0 FROM t;
SELECT p / 0 FROM t;
SELECT p % 0 FROM t;
SELECT d / 3, d * 3, d + 0.1, d - 0.1, d + i FROM t WHERE id IN (1, 2);
SELECT d * 10 FROM t WHERE id = 3;
SELECT d + d FROM t WHERE id = 3;
SELECT d * d FROM t WHERE id = 3;
SELECT 1e-200::double precision * 1e-200::double precision;
SELECT 1e-200::double precision / 1e200::double precision;
SELECT p + 1, p - 1.25, p * 2.50, p / 3, p % 1, -p, p + i, i + p, q * p, q / 7, q + 1 FROM t WHERE id IN (1, 2);
SELECT p + d FROM t WHERE id = 1;
SELECT p / 7, 7 / p FROM t WHERE id = 3;
SELECT 1.0 / 3, 10.0 / 3, 2 / 3.0, 100000.0 / 3, 0.0001 / 3, 1 / 3.000, 1e10 / 7, 123456789.123 / 0.0007;
SELECT 1.5 + 1, 1.10 * 2, 0.1 + 0.2, 10 % 3.3, -10 % 3.3, 1e3, .5, 5.;
SELECT 2147483647, 2147483648, 9223372036854775807, 9223372036854775808, -2147483648, -9223372036854775808;
SELECT -(2147483648), -(5::bigint), - -5, -(-5), -(2.50), -9223372036854775809, -(-2147483648);
SELECT 2147483647 + 1;
SELECT 2147483648 + 1;
SELECT 9223372036854775807 + 1;
SELECT 9223372036854775808 + 1;
SELECT id FROM t WHERE i = 10;
SELECT id FROM t WHERE i = '10';
SELECT id FROM t WHERE i = 10.0;
SELECT id FROM t WHERE i < 10.5 ORDER BY id;
SELECT id FROM t WHERE n = d;
SELECT 9007199254740993 = 9007199254740992::double precision;
SELECT id FROM t WHERE p = 1.5;
SELECT id FROM t WHERE p IN (1.500, 2) ORDER BY id;
SELECT id FROM t WHERE q > 9.98 ORDER BY id;
SELECT id FROM t WHERE p > q;
SELECT id FROM t WHERE d = 1.5;
SELECT id FROM t WHERE x = 'abc';
SELECT id FROM t WHERE x < 'abc' ORDER BY id;
SELECT id FROM t WHERE x > v ORDER BY id;
SELECT id FROM t WHERE ok;
SELECT id FROM t WHERE NOT ok;
SELECT id FROM t WHERE ok = true OR ok = 'f' ORDER BY id;
SELECT id FROM t WHERE ok IS TRUE;
SELECT id FROM t WHERE ok IS NOT TRUE ORDER BY id;
SELECT id FROM t WHERE ok IS FALSE;
SELECT id FROM t WHERE ok IS NOT FALSE ORDER BY id;
SELECT id FROM t WHERE ok IS NULL ORDER BY id;
SELECT id FROM t WHERE i;
SELECT id FROM t WHERE 1;
SELECT id FROM t WHERE NOT i;
SELECT id FROM t WHERE i = true;
SELECT id FROM t WHERE x = 1;
SELECT id FROM t WHERE x = i;
SELECT id FROM t WHERE u = '00000000-0000-0000-0000-000000000001';
SELECT id FROM t WHERE u > '00000000-0000-0000-0000-000000000001';
SELECT id FROM t WHERE b = '\x00ff';
SELECT id FROM t WHERE at < '2000-01-01 00:00:00+00';
SELECT id FROM t WHERE at = '2030-01-02 05:04:05.678+02';
SELECT id FROM t WHERE at = 'nonsense';
SELECT id FROM t WHERE i = 'x';
SELECT id FROM t WHERE ok = 'maybe';
SELECT id FROM t WHERE u = 'x';
SELECT id FROM t WHERE s = '40000';
SELECT id FROM t WHERE x IS NULL;
SELECT id FROM t WHERE x IS NOT NULL ORDER BY id;
SELECT id FROM t WHERE x ISNULL;
SELECT id FROM t WHERE x IS DISTINCT FROM 'abc' ORDER BY id;
SELECT id FROM t WHERE x IS NOT DISTINCT FROM NULL;
SELECT id FROM t WHERE p IS NOT DISTINCT FROM 1.5000;
SELECT id FROM t WHERE x = NULL;
SELECT id FROM t WHERE i BETWEEN 1 AND 10;
SELECT id FROM t WHERE i NOT BETWEEN 1 AND 10 ORDER BY id;
SELECT id FROM t WHERE p BETWEEN 1 AND 1.5;
SELECT id FROM t WHERE i IN (10, 11);
SELECT id FROM t WHERE i NOT IN (10, 11) ORDER BY id;
SELECT id FROM t WHERE i NOT IN (10, NULL);
SELECT id FROM t WHERE x IN ('abc', 'ABC') ORDER BY id;
SELECT id FROM t WHERE i IN (1, 'x');
SELECT id FROM t WHERE x LIKE 'a%';
SELECT id FROM t WHERE x LIKE '_b_';
SELECT id FROM t WHERE x NOT LIKE 'a%' ORDER BY id;
SELECT id FROM t WHERE NOT x LIKE 'a%' ORDER BY id;
SELECT id FROM t WHERE x LIKE '__€_' OR x LIKE '___' ORDER BY id;
SELECT 'a%b' LIKE 'a\%b', 'axb' LIKE 'a\%b', 'a!b' LIKE 'a!!b' ESCAPE '!', 'a%b' LIKE 'a!%b' ESCAPE '!';
SELECT '' LIKE '%', '' LIKE '', 'a' LIKE '', 'abcabc' LIKE '%b%c', 'abcab' LIKE '%b%c';
SELECT x || 'z', x || v, 'a' || 'b', x || NULL FROM t WHERE id IN (1, 4) ORDER BY id;
SELECT length(x), length(b), length(v) FROM t ORDER BY id;
SELECT lower(x), upper(x), upper(v) FROM t WHERE id IN (1, 2, 4) ORDER BY id;
SELECT round(p), round(q, 1), round(p, 0), round(-2.5), round(2.5), round(1234.5, -2), round(0.005, 2), round(i, -1) FROM t WHERE id = 1;
SELECT round(d), floor(d), ceil(d), floor(p), ceil(p), ceil(-0.5) FROM t WHERE id IN (1, 2) ORDER BY id;
SELECT round(2.5::double precision), round(3.5::double precision), round(-2.5::double precision);
SELECT coalesce(i, 0), coalesce(x, 'none'), coalesce(NULL, p, 1), coalesce(NULL, NULL, 'a'), coalesce(i, n) FROM t ORDER BY id;
SELECT nullif(i, 10), nullif(x, 'abc'), nullif(p, 1.5), nullif(1, 2) FROM t ORDER BY id;
SELECT CASE WHEN i > 0 THEN 'plus' WHEN i < 0 THEN 'minus' END, CASE i WHEN 10 THEN 1 ELSE 2.5 END FROM t ORDER BY id;
SELECT CASE WHEN ok THEN i ELSE n END, CASE WHEN ok THEN NULL ELSE x END FROM t ORDER BY id;
SELECT CASE WHEN s <> 0 THEN 10 / s ELSE 0 END FROM t WHERE id = 1;
SELECT CASE WHEN ok THEN 1 ELSE 'x' END FROM t;
SELECT 1 AS one, 'a' AS two, NULL AS three, true AS four;
SELECT 1, 'a', NULL, true, -1, 1 + 1, count(*), coalesce(1, 2), now() IS NULL, nullif(1, 2), CASE WHEN true THEN 1 END, lower('A'), 5::bigint, 'a'::text, abs(-1), i::bigint, (SELECT 5), EXISTS (SELECT 1), max(7) FROM t GROUP BY i ORDER BY i;
SELECT now() = now(), now() > '2000-01-01 00:00:00+00';
SELECT random() >= 0 AND random() < 1;
SELECT gen_random_uuid() = gen_random_uuid();
SELECT current_timestamp = now();
SELECT (SELECT i FROM t WHERE id = 1), (SELECT max(i) FROM t), (SELECT i FROM t WHERE id = 99);
SELECT id FROM t AS o WHERE i = (SELECT max(i) FROM t);
SELECT id FROM t AS o WHERE EXISTS (SELECT 1 FROM t AS k WHERE k.i > o.i) ORDER BY id;
SELECT id FROM t WHERE i IN (SELECT i FROM t WHERE ok) ORDER BY id;
SELECT id FROM t WHERE id NOT IN (SELECT id FROM t WHERE ok);
SELECT id FROM t WHERE p IN (SELECT q FROM t);
SELECT id FROM t WHERE nope = 1;
SELECT id FROM nope;
SELECT nope.id FROM t;
SELECT t.id FROM t AS o;
SELECT id, id FROM t WHERE id = 1;
SELECT id FROM t WHERE "ID" = 1;
SELECT ID, T.Id FROM T WHERE Id = 1;
SELECT "x" FROM t WHERE "x" = "abc";
-- args: [1]
SELECT id FROM t WHERE id = $1;
-- args: [10, 11]
SELECT id FROM t WHERE i = $1 OR i = $2;
-- args: [2**40]
SELECT id FROM t WHERE i = $1;
-- args: [2**63]
SELECT id FROM t WHERE n = $1;
-- args: ["x"]
SELECT id FROM t WHERE i = $1;
-- args: [5]
SELECT id FROM t WHERE x = $1;
-- args: [Decimal("1.5")]
SELECT id, p + $1 FROM t WHERE p = $1;
-- args: ["a%"]
SELECT id FROM t WHERE x LIKE $1;
-- args: [True]
SELECT id FROM t WHERE ok = $1;
-- args: [None]
SELECT id FROM t WHERE i = $1 OR i IS NOT DISTINCT FROM $1;
-- args: [UUID(int=1)]
SELECT id FROM t WHERE u = $1;
-- args: [datetime(2000, 1, 1, tzinfo=UTC)]
SELECT id FROM t WHERE at > $1;
-- args: [b"\x00\xff"]
SELECT id FROM t WHERE b = $1;
-- args: [1.5]
SELECT id, d + $1 FROM t WHERE d = $1;
-- args: [5, "a", Decimal("1.50"), True, b"x", UUID(int=5), {"a": 1}, 2.5, datetime(2030, 1, 1, 1, 1, 1, 5, tzinfo=UTC)]
SELECT $1::bigint, $2::text, $3::numeric, $4::boolean, $5::bytea, $6::uuid, $7::jsonb, $8::double precision, $9::timestamptz;
-- args: [None, 10]
SELECT id FROM t WHERE ($1::int IS NULL OR i = $1) AND i = $2;
-- args: [10]
SELECT id FROM t WHERE i + $1 = 20;
-- args: [1]
SELECT id FROM t WHERE id = $1 AND s = $1::bigint;
-- args: []
SELECT id FROM t WHERE id = $1;
-- args: [1, 2]
SELECT id FROM t WHERE id = $1;
-- args: ["a\x00b"]
SELECT id FROM t WHERE x = $1;
-- Chance, asked twice by BETWEEN on both engines.
SELECT floor(random() * 16) BETWEEN 0 AND 15 AS shard, random() NOT BETWEEN 0 AND 1;
SELECT count(*) FROM t WHERE floor(random() * 16) BETWEEN 0 AND 15;
-- Logarithms and powers of numeric have the digits that PostgreSQL gives them.
SELECT ln(2.5), ln(1.0), ln(0.95), ln(1.000000001), ln(1e-30), ln(1e100), ln(2.718281828459045), ln(20000.0);
SELECT exp(1.0), exp(0.0), exp(-1.0), exp(100.0), exp(-50.5), exp(0.00001), exp(500.25);
SELECT log(100.0), log10(2.0), log(2.0, 64.0), log(10.0, 1000.0), log(0.5, 8.0), log(1e-5), log(1.5, 1.0), log(2, 8), log(100);
SELECT 2.0 ^ 0.5, power(100.0, 0.5), power(0.0, 0.5), power(4.0, 1.5), power(10.0, -0.5), power(1.5, 100.25), power(1e10, 2.5);
-- fails
SELECT ln(0.0);
-- fails
SELECT log(-1.0);
-- fails
SELECT log(1.0, 2.0);
-- fails
SELECT power(-1.0, 0.5);
-- fails
SELECT power(0.0, -0.5);
-- fails
SELECT exp(6000.0);
-- refused
SELECT exp(-3000.0);
