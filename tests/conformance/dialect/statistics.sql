-- Aggregates of statistics, ordered sets, JSON collections, and mathematics on numeric.
CREATE TABLE s (id integer PRIMARY KEY, k text, i integer, l smallint, b bigint, p numeric, q numeric(10,2), f double precision, t text, at timestamptz, d date, j jsonb, o boolean);
INSERT INTO s VALUES (1, 'a', 1, 1, 9000000000000000000, 1.5, 1.5, 0.1, 'x', '2030-01-01', '2030-01-01', '{"b": 1, "a": 2}', true), (2, 'a', 2, 2, -9000000000000000000, 2.25, 2, 0.2, 'y"z', '2031-01-01 10:20:30.5', '2031-01-01', '[1, 2]', false), (3, 'a', 2, 2, 5, 1e10, 3, 0.3, 'é', NULL, NULL, NULL, NULL), (4, 'b', -7, 7, 7, 0.000001, 4.44, 1e5, NULL, '2029-01-01', '2029-01-01', '1', true), (5, 'b', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL), (6, 'c', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL), (7, 'd', 5, 5, 5, 5.50, 5.50, 5.5, 't', '2030-05-05', '2030-05-05', '"s"', true);
-- Spreads.
SELECT stddev(i), stddev_samp(i), stddev_pop(i), variance(i), var_samp(i), var_pop(i) FROM s;
SELECT stddev(l), stddev_samp(l), stddev_pop(l), variance(l), var_samp(l), var_pop(l) FROM s;
SELECT stddev(b), stddev_samp(b), stddev_pop(b), variance(b), var_samp(b), var_pop(b) FROM s;
SELECT stddev(p), stddev_samp(p), stddev_pop(p), variance(p), var_samp(p), var_pop(p) FROM s;
SELECT stddev(q), stddev_samp(q), stddev_pop(q), variance(q), var_samp(q), var_pop(q) FROM s;
SELECT stddev(f), stddev_samp(f), stddev_pop(f), variance(f), var_samp(f), var_pop(f) FROM s;
SELECT k, stddev(i), stddev_pop(i), variance(p), var_pop(p), stddev(f), var_pop(f) FROM s GROUP BY k ORDER BY k;
SELECT stddev(DISTINCT i), variance(DISTINCT p), stddev(i) FILTER (WHERE id < 3), variance(i + 1) + 1 FROM s;
SELECT k FROM s GROUP BY k HAVING stddev(i) > 0.5 ORDER BY k;
SELECT stddev(i), variance(p), stddev_pop(f) FROM s WHERE id > 100;
SELECT var_pop(p * 0), stddev_pop(q - q), stddev(1), var_pop(1.50) FROM s;
SELECT variance(x), stddev(x), var_pop(x), stddev_pop(x) FROM (VALUES (0.1), (0.2), (0.30), (1e-20)) AS v (x);
SELECT variance(x), stddev(x), var_pop(x), stddev_pop(x) FROM (VALUES (1e30), (2e30), (3.5)) AS v (x);
SELECT variance(x), stddev(x) FROM (VALUES (1e200::float8), (2e200), (-1e200)) AS v (x);
-- fails
SELECT stddev(t) FROM s;
-- fails
SELECT stddev(*) FROM s;
-- fails
SELECT stddev(i, i) FROM s;
-- fails
SELECT id FROM s WHERE stddev(i) > 0;
-- refused
SELECT stddev(i) OVER (ORDER BY id) FROM s;
-- Bits and any value.
SELECT bit_and(i), bit_or(i), bit_xor(i), bit_and(l), bit_or(b), bit_xor(b) FROM s;
SELECT k, bit_and(i), bit_or(l), bit_xor(DISTINCT i) FROM s GROUP BY k ORDER BY k;
-- fails
SELECT bit_and(p) FROM s;
SELECT k, any_value(k), any_value(k || '!'), any_value(1) FROM s GROUP BY k ORDER BY k;
SELECT any_value(p) FILTER (WHERE id = 7), any_value(d) FILTER (WHERE id = 4), any_value(j) FILTER (WHERE id = 7) FROM s;
SELECT any_value(i ORDER BY i), any_value(t ORDER BY t DESC NULLS LAST), any_value(at ORDER BY at) FROM s;
-- fails
SELECT any_value() FROM s;
-- Ordered sets.
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY i), percentile_cont(0.25) WITHIN GROUP (ORDER BY p), percentile_cont(0.9) WITHIN GROUP (ORDER BY f DESC), percentile_cont(0) WITHIN GROUP (ORDER BY b), percentile_cont(1) WITHIN GROUP (ORDER BY q) FROM s;
SELECT k, percentile_cont(0.3) WITHIN GROUP (ORDER BY i), percentile_disc(0.3) WITHIN GROUP (ORDER BY i), percentile_disc(0.3) WITHIN GROUP (ORDER BY i DESC) FROM s GROUP BY k ORDER BY k;
SELECT percentile_disc(0) WITHIN GROUP (ORDER BY t), percentile_disc(0.5) WITHIN GROUP (ORDER BY t), percentile_disc(1) WITHIN GROUP (ORDER BY at), percentile_disc(0.2) WITHIN GROUP (ORDER BY d DESC), percentile_disc(0.5) WITHIN GROUP (ORDER BY o) FROM s;
SELECT mode() WITHIN GROUP (ORDER BY i), mode() WITHIN GROUP (ORDER BY k), mode() WITHIN GROUP (ORDER BY k DESC), mode() WITHIN GROUP (ORDER BY f), mode() WITHIN GROUP (ORDER BY i) FILTER (WHERE id > 3) FROM s;
SELECT mode() WITHIN GROUP (ORDER BY i), percentile_cont(0.5) WITHIN GROUP (ORDER BY i), percentile_disc(0.5) WITHIN GROUP (ORDER BY i) FROM s WHERE id > 100;
SELECT percentile_cont(NULL) WITHIN GROUP (ORDER BY i), percentile_disc(NULL) WITHIN GROUP (ORDER BY i) FROM s;
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY i * 2 + 1) AS median, count(*) FROM s HAVING percentile_cont(0.5) WITHIN GROUP (ORDER BY i) > 0;
-- args: [0.75]
SELECT percentile_cont($1) WITHIN GROUP (ORDER BY i), percentile_disc($1) WITHIN GROUP (ORDER BY i) FROM s;
-- fails
SELECT percentile_cont(1.5) WITHIN GROUP (ORDER BY i) FROM s;
-- fails
SELECT percentile_disc(-0.1) WITHIN GROUP (ORDER BY i) FROM s;
-- fails
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY t) FROM s;
-- fails
SELECT percentile_cont(0.5, i) FROM s;
-- fails
SELECT mode(i) FROM s;
-- fails
SELECT mode() WITHIN GROUP (ORDER BY i, l) FROM s;
-- fails
SELECT sum(i) WITHIN GROUP (ORDER BY i) FROM s;
-- fails
SELECT id FROM s WHERE mode() WITHIN GROUP (ORDER BY i) = 1;
-- refused
SELECT percentile_cont(ARRAY[0.5, 0.9]) WITHIN GROUP (ORDER BY i) FROM s;
-- refused
SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY p) FROM s;
-- refused
SELECT mode() WITHIN GROUP (ORDER BY p) FROM s;
-- refused
SELECT k, percentile_cont(length(k) * 0.1) WITHIN GROUP (ORDER BY i) FROM s GROUP BY k;
-- fails
SELECT count(DISTINCT i, l) FROM s;
-- refused
SELECT count(DISTINCT (i, l)) FROM s;
-- JSON.
SELECT json_agg(i ORDER BY id), json_agg(p ORDER BY id)::text, json_agg(t ORDER BY id)::text, json_agg(f ORDER BY id)::text, json_agg(o ORDER BY id)::text FROM s;
SELECT json_agg(at ORDER BY id)::text, json_agg(d ORDER BY id)::text, json_agg(j ORDER BY id)::text, json_agg(j::json ORDER BY id)::text, json_agg(q ORDER BY id) FILTER (WHERE q > 2) FROM s;
SELECT k, json_agg(i ORDER BY id), json_object_agg(id, i ORDER BY id)::text FROM s GROUP BY k ORDER BY k;
SELECT json_agg(i), json_object_agg(k, i) FROM s WHERE id > 100;
SELECT json_object_agg(k, i ORDER BY id)::text, json_object_agg(id, t ORDER BY id)::text, json_object_agg(id, p ORDER BY id) FROM s;
-- fails
SELECT json_object_agg(t, i) FROM s;
-- refused
SELECT json_agg(DISTINCT i) FROM s;
-- refused
SELECT json_agg(ARRAY[1, i]) FROM s;
SELECT json_build_object('id', id, 'price', p, 'text', t, 'doc', j, 'list', json_build_array(i, NULL, o, at, d, f)) FROM s ORDER BY id;
SELECT json_build_object('id', id, 'price', p, 'text', t, 'doc', j, 'list', json_build_array(i, NULL, o, at, d, f))::text FROM s ORDER BY id;
SELECT json_build_object()::text, json_build_array()::text, json_build_object('a', 1, 'a', 2)::text, json_build_object(1, 2, true, 3, '2030-01-01'::date, 4)::text, json_build_array(ARRAY[1, 2], ARRAY['a b', NULL, 'c"d'])::text;
SELECT json_build_array('{"x":  1}'::json, '{"x":  1}'::jsonb, 1e20::double precision, 1e-7::double precision, 1.50, interval '1 day', '10:00'::time, '\x00ff'::bytea)::text;
SELECT to_json(t)::text, to_json(p)::text, to_json(at)::text, to_json(j)::text, to_json(o)::text, to_json(f)::text, to_json(i) FROM s ORDER BY id;
SELECT to_json(ARRAY[1, NULL, 3])::text, to_json(ARRAY['a', 'b c'])::text, to_json(E'tab\there\u0001'::text)::text;
-- args: ["é", 5]
SELECT json_build_object('t', $1::text, 'n', $2::integer) ->> 't', json_build_array($1::text, $2::bigint)::text;
-- fails
SELECT json_build_object('a');
-- fails
SELECT json_build_object(NULL, 1);
-- fails
SELECT to_json('a');
-- fails
SELECT json_build_object('{}'::jsonb, 1);
-- refused
SELECT json_build_object('2030-01-01'::timestamp, 1);
-- Mathematics.
SELECT sqrt(p), sqrt(q), sqrt(abs(b)::numeric), sqrt(f), sqrt(i * i) FROM s ORDER BY id;
SELECT sqrt(2::numeric), sqrt(0.0), sqrt(0.000000002), sqrt(123456789012345678901234567890.5), sqrt(4.00), sqrt(NULL::numeric);
-- fails
SELECT sqrt(-1.5);
SELECT power(p, 2), power(q, 3), p ^ 2, power(q, 0), pow(q, -1), power(p, 1), power(q, 2.0) FROM s WHERE id <> 3 ORDER BY id;
SELECT power(2::numeric, 100), power(10.0, 20), power(-1.5, 3), power(0.0, 0), power(0.0, 5), power(1.0001, 365), power(7.0, -5), power(0.1, 20), 2.0 ^ 10, 2 ^ 10;
SELECT power(1.05, x) FROM (VALUES (1.0), (12), (-12), (NULL)) AS v (x);
-- fails
SELECT power(0.0, -1);
SELECT power(2.0, 0.5);
SELECT exp(1.0);
SELECT ln(2.0), log(2.0);
SELECT x, exp(x), sin(x), cos(x), tan(x), atan(x), sinh(x), cosh(x), tanh(x), asinh(x), cbrt(x), power(x, 3), x ^ 2 FROM (VALUES (0.0::double precision), (1), (-1), (0.1), (-2.5), (3.7), (100), (-0.75), (NULL)) AS v (x) ORDER BY x;
SELECT x, ln(x), log(x), log10(x), cot(x), acosh(x + 1), power(x, 0.37::double precision), power(2::double precision, x), atan2(x, 2) FROM (VALUES (1::double precision), (0.1), (2.5), (123.456)) AS v (x) ORDER BY x;
SELECT x, asin(x), acos(x), atanh(x) FROM (VALUES (0::double precision), (0.5), (-0.25), (0.999)) AS v (x) ORDER BY x;
SELECT exp(1), ln(2), log(100), sin(1), cos(pi()), power(2, -1), power(15.5::double precision, 1.5), power(2, 1000), sin('1'), atan2(1, -1);
-- fails
SELECT ln(0::double precision);
-- fails
SELECT exp(1000::double precision);
-- fails
SELECT exp(-1000::double precision);
-- fails
SELECT acos(2::double precision);
-- fails
SELECT power(0::double precision, -1);
-- fails
SELECT power(-8::double precision, 0.5);
-- fails
SELECT power(10::double precision, 400);
-- refused
SELECT atanh(1::double precision);
-- refused
SELECT cosh(1000::double precision);
DROP TABLE s;
-- PostgreSQL computes the squares for an average, too.
-- fails
SELECT avg(x) FROM (VALUES (1e200::double precision), (1)) AS big (x);
SELECT avg(x), sum(x), stddev(x) FROM (VALUES (1e150::double precision), (1)) AS big (x);
-- fails
SELECT stddev_pop(x) FROM (VALUES (1e200::double precision)) AS big (x) UNION ALL SELECT stddev(x) FROM (VALUES (1e200::double precision), (2), (3)) AS big (x);
SELECT stddev_samp(x), avg(x) FROM (VALUES (1e200::double precision)) AS big (x);
-- Intervals.
CREATE TABLE span (id integer PRIMARY KEY, length interval);
INSERT INTO span VALUES (1, '1 month 2 days 03:04:05.678'), (2, '-1 year -2 months 3 days -04:05:06'), (3, NULL), (4, '1 second');
SELECT sum(length), avg(length), sum(length)::text, avg(length)::text, avg(DISTINCT length)::text FROM span;
SELECT id % 2 AS odd, sum(length)::text, avg(length)::text FROM span GROUP BY 1 ORDER BY 1;
SELECT sum(length), avg(length) FROM span WHERE id = 3;
SELECT id, sum(length) OVER (ORDER BY id)::text, avg(length) OVER (ORDER BY id ROWS 1 PRECEDING)::text, count(length) OVER () FROM span ORDER BY id;
SELECT isfinite(length) FROM span ORDER BY id;
-- fails
SELECT sum(length) FROM (VALUES ('2000000000 days'::interval), ('2000000000 days')) AS long (length);
