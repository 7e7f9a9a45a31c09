-- Window functions: ranks, neighbours, aggregates over frames, named windows.
CREATE TABLE w (id integer PRIMARY KEY, g text, n integer, big bigint, s smallint, d double precision, p numeric, q numeric(8,2), v varchar(5), ok boolean, at timestamptz);
INSERT INTO w VALUES (1, 'a', 10, 1, 1, 0.5, 1.50, 1.00, 'x', true, '2030-01-01 00:00:00+00'), (2, 'a', 20, 9223372036854775807, 2, 1.5, 1.5, 2.25, 'y', false, NULL), (3, 'a', 20, 9223372036854775807, 3, NULL, NULL, NULL, NULL, NULL, NULL), (4, 'b', NULL, -5, -4, 1e10, 0.10, 0.10, 'x', true, '2031-01-01 00:00:00+00'), (5, 'b', 5, NULL, 5, -1e10, 12.25, 1.5, 'Z', false, NULL), (6, NULL, 5, 7, NULL, 0.1, 100, 3, '', true, NULL), (7, NULL, 7, 7, 7, 0.2, 1.500, 3.00, 'xy', NULL, NULL);
SELECT id, row_number() OVER (ORDER BY id) FROM w ORDER BY id;
SELECT id, row_number() OVER (ORDER BY id DESC) AS r FROM w ORDER BY r;
SELECT id, row_number() OVER (PARTITION BY g ORDER BY n, id) FROM w ORDER BY id;
SELECT id, rank() OVER (ORDER BY n), dense_rank() OVER (ORDER BY n), percent_rank() OVER (ORDER BY n), cume_dist() OVER (ORDER BY n) FROM w ORDER BY id;
SELECT id, rank() OVER (ORDER BY n DESC) FROM w ORDER BY id;
SELECT id, rank() OVER (ORDER BY n NULLS FIRST), rank() OVER (ORDER BY n DESC NULLS LAST) FROM w ORDER BY id;
SELECT id, rank() OVER (ORDER BY p), dense_rank() OVER (ORDER BY p DESC) FROM w ORDER BY id;
SELECT id, rank() OVER (PARTITION BY p ORDER BY id) FROM w ORDER BY id;
SELECT id, rank() OVER (ORDER BY v), rank() OVER (ORDER BY ok, g DESC) FROM w ORDER BY id;
SELECT id, ntile(3) OVER (ORDER BY id), ntile(100) OVER (ORDER BY id), ntile(1) OVER (ORDER BY id) FROM w ORDER BY id;
-- refused
SELECT ntile(0) OVER (ORDER BY id) FROM w WHERE false;
SELECT id, lag(n) OVER (ORDER BY id), lead(n) OVER (ORDER BY id), lag(n, 2) OVER (ORDER BY id), lead(n, 0) OVER (ORDER BY id) FROM w ORDER BY id;
SELECT id, lag(n, 1, 0) OVER (ORDER BY id), lag(n, 1, 2.5) OVER (ORDER BY id), lag(v, 1, 'none') OVER (ORDER BY id), lag(g, 1, NULL) OVER (ORDER BY id), lead(big, 1, 5) OVER (ORDER BY id) FROM w ORDER BY id;
SELECT id, lag(p) OVER (ORDER BY id), lag(q) OVER (ORDER BY id), lag(d) OVER (ORDER BY id), lag(ok) OVER (ORDER BY id), lag(at) OVER (ORDER BY id), lag(s) OVER (PARTITION BY g ORDER BY id) FROM w ORDER BY id;
-- refused
SELECT id, lag(n, -1) OVER (ORDER BY id) FROM w WHERE false;
SELECT id, first_value(n) OVER (PARTITION BY g ORDER BY id), last_value(n) OVER (PARTITION BY g ORDER BY id), nth_value(n, 2) OVER (PARTITION BY g ORDER BY id) FROM w ORDER BY id;
SELECT id, last_value(v) OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) FROM w ORDER BY id;
SELECT id, first_value(v) OVER (ORDER BY id ROWS BETWEEN 1 FOLLOWING AND 2 FOLLOWING) FROM w ORDER BY id;
SELECT id, sum(n) OVER (), count(*) OVER (), count(n) OVER (), avg(n) OVER (), min(n) OVER (), max(n) OVER () FROM w ORDER BY id;
SELECT id, sum(n) OVER (ORDER BY id), sum(big) OVER (ORDER BY id), sum(s) OVER (ORDER BY id), avg(big) OVER (ORDER BY id), avg(s) OVER (ORDER BY id) FROM w ORDER BY id;
SELECT id, sum(d) OVER (ORDER BY id), avg(d) OVER (ORDER BY id), sum(p) OVER (ORDER BY id), avg(p) OVER (ORDER BY id), sum(q) OVER (ORDER BY id) FROM w ORDER BY id;
SELECT id, min(p) OVER (ORDER BY id), max(p) OVER (ORDER BY id), min(v) OVER (ORDER BY id), max(g) OVER (ORDER BY id), max(at) OVER (ORDER BY id) FROM w ORDER BY id;
SELECT id, sum(n) OVER (ORDER BY n), count(*) OVER (ORDER BY n) FROM w ORDER BY id;
SELECT id, sum(n) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW), sum(n) OVER (ORDER BY id ROWS 2 PRECEDING), sum(n) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) FROM w ORDER BY id;
SELECT id, sum(p) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING), avg(p) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW), sum(d) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING), avg(big) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM w ORDER BY id;
SELECT id, min(n) OVER (ORDER BY id ROWS BETWEEN 1 FOLLOWING AND 2 FOLLOWING), max(p) OVER (ORDER BY id ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING), count(*) OVER (ORDER BY id ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING) FROM w ORDER BY id;
SELECT id, sum(n) OVER (ORDER BY n RANGE BETWEEN 5 PRECEDING AND 5 FOLLOWING), count(*) OVER (ORDER BY n DESC RANGE BETWEEN 2 PRECEDING AND CURRENT ROW), count(*) OVER (ORDER BY s RANGE BETWEEN 9 PRECEDING AND 1 FOLLOWING) FROM w ORDER BY id;
SELECT id, count(*) OVER (ORDER BY n NULLS FIRST RANGE BETWEEN 5 PRECEDING AND 5 FOLLOWING), count(*) OVER (ORDER BY n RANGE BETWEEN UNBOUNDED PRECEDING AND 3 FOLLOWING), count(*) OVER (ORDER BY n RANGE BETWEEN 3 FOLLOWING AND UNBOUNDED FOLLOWING) FROM w ORDER BY id;
SELECT id, sum(n) OVER (ORDER BY g GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW), sum(n) OVER (ORDER BY n GROUPS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) FROM w ORDER BY id;
SELECT id, sum(n) OVER (ORDER BY id ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING), sum(n) OVER (ORDER BY g RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING), sum(n) OVER (RANGE UNBOUNDED PRECEDING) FROM w ORDER BY id;
SELECT id, sum(n) OVER (ORDER BY n ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW), count(*) OVER (ORDER BY n RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE GROUP), count(*) OVER (ORDER BY n GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE TIES) FROM w ORDER BY id;
SELECT sum(n) OVER (ORDER BY id ROWS BETWEEN UNBOUNDED FOLLOWING AND CURRENT ROW) FROM w;
SELECT sum(n) OVER (ORDER BY id ROWS BETWEEN CURRENT ROW AND 1 PRECEDING) FROM w;
SELECT sum(n) OVER (ORDER BY id ROWS 1 FOLLOWING) FROM w;
SELECT id, sum(n) OVER w1, rank() OVER w1, row_number() OVER w2 FROM w WINDOW w1 AS (PARTITION BY g ORDER BY n), w2 AS (ORDER BY id DESC) ORDER BY id;
SELECT id FROM w ORDER BY row_number() OVER (ORDER BY n DESC, id);
SELECT id, n - lag(n) OVER (ORDER BY id) AS change, n > avg(n) OVER (PARTITION BY g) AS above, coalesce(lag(g) OVER (ORDER BY id), 'first') FROM w ORDER BY id;
SELECT sum(n) OVER (ORDER BY id) + 1, (sum(n) OVER (ORDER BY id))::text, CASE WHEN rank() OVER (ORDER BY n) = 1 THEN 'first' ELSE 'other' END FROM w ORDER BY id;
SELECT g, sum(n), rank() OVER (ORDER BY sum(n) DESC), sum(sum(n)) OVER (), sum(n) * 100 / sum(sum(n)) OVER () FROM w GROUP BY g ORDER BY g;
SELECT g, count(*), row_number() OVER (ORDER BY count(*) DESC, g) FROM w GROUP BY g HAVING count(*) > 1 ORDER BY 3;
SELECT s.id, s.r FROM (SELECT id, row_number() OVER (PARTITION BY g ORDER BY n DESC, id) AS r FROM w) AS s WHERE s.r = 1 ORDER BY s.id;
WITH ranked AS (SELECT id, g, rank() OVER (PARTITION BY g ORDER BY p DESC NULLS LAST) AS r FROM w) SELECT g, id FROM ranked WHERE r <= 2 ORDER BY g, id;
SELECT DISTINCT g, count(*) OVER (PARTITION BY g) FROM w ORDER BY g;
SELECT id, row_number() OVER (ORDER BY id) FROM w ORDER BY id LIMIT 2 OFFSET 1;
SELECT row_number() OVER () FROM w WHERE false;
SELECT count(*) FROM (SELECT row_number() OVER () AS r FROM w) AS s;
UPDATE w SET n = (SELECT s.r FROM (SELECT id, row_number() OVER (ORDER BY id DESC) AS r FROM w) AS s WHERE s.id = w.id) RETURNING id, n;
SELECT id FROM w WHERE row_number() OVER () = 1;
SELECT count(*) FROM w GROUP BY row_number() OVER ();
SELECT g FROM w GROUP BY g HAVING rank() OVER () = 1;
SELECT sum(row_number() OVER ()) FROM w;
SELECT row_number() OVER (ORDER BY rank() OVER ()) FROM w;
SELECT count(DISTINCT n) OVER () FROM w;
SELECT rank() OVER nope FROM w;
SELECT n, sum(n) OVER (ORDER BY id) FROM w GROUP BY n;
SELECT id, count(*) FILTER (WHERE ok) OVER (ORDER BY id), sum(p) FILTER (WHERE n > 5) OVER (PARTITION BY g ORDER BY id ROWS 1 PRECEDING), max(q) FILTER (WHERE false) OVER () FROM w ORDER BY id;
SELECT row_number() FILTER (WHERE ok) OVER () FROM w;
-- refused
SELECT row_number() OVER w1 FROM w WINDOW w1 AS (w2 ORDER BY id), w2 AS (PARTITION BY g);
-- refused
SELECT sum(n) OVER (w1 ORDER BY id) FROM w WINDOW w1 AS (PARTITION BY g);
-- refused
SELECT lag(n, id) OVER (ORDER BY id) FROM w;
-- args: [1]
SELECT sum(n) OVER (ORDER BY id ROWS $1 PRECEDING) FROM w;
-- refused
SELECT sum(n) OVER (ORDER BY p RANGE 1 PRECEDING) FROM w;
-- refused
SELECT count(*) OVER (ORDER BY big RANGE BETWEEN 1 FOLLOWING AND 2 FOLLOWING) FROM w;
-- refused
SELECT row_number() OVER (ORDER BY 1) FROM w;
-- refused
SELECT row_number() OVER (ORDER BY (SELECT 1)) FROM w;
SELECT lag(n, 1, $1) OVER (ORDER BY id), first_value('a') OVER () FROM w;
-- The first two rows are never in one frame together, so nothing overflows.
SELECT id, sum(x) OVER (ORDER BY id ROWS BETWEEN 1 FOLLOWING AND 2 FOLLOWING) FROM (VALUES (1, 1e308::double precision), (2, 1e308), (3, 1), (4, 1)) AS big (id, x) ORDER BY id;
-- args: [1, 2]
SELECT id, sum(n) OVER (ORDER BY id ROWS BETWEEN $1 PRECEDING AND $2 FOLLOWING) AS s FROM w ORDER BY id;
-- args: [1]
SELECT id, max(n) OVER (PARTITION BY g ORDER BY id ROWS BETWEEN CURRENT ROW AND $1::integer FOLLOWING) AS s FROM w ORDER BY id;
-- args: [10]
SELECT id, count(*) OVER (ORDER BY n RANGE BETWEEN $1::integer PRECEDING AND $1::integer FOLLOWING) AS s FROM w ORDER BY id;
-- args: [9223372036854775807]
SELECT id, count(*) OVER (ORDER BY n GROUPS $1 PRECEDING) AS s FROM w ORDER BY id;
-- args: [9223372036854775807]
SELECT id, count(*) OVER (ORDER BY id ROWS BETWEEN $1 FOLLOWING AND UNBOUNDED FOLLOWING) AS s FROM w ORDER BY id;
-- fails
-- args: [-1]
SELECT id, sum(n) OVER (ORDER BY id ROWS $1 PRECEDING) AS s FROM w ORDER BY id;
-- fails
-- args: [None]
SELECT id, sum(n) OVER (ORDER BY id ROWS $1 PRECEDING) AS s FROM w ORDER BY id;
-- args: [1, 0]
SELECT id, lag(n, $1) OVER (ORDER BY id), lead(n, $2::integer, 7) OVER (ORDER BY id) FROM w ORDER BY id;
-- args: [2, 3]
SELECT id, nth_value(v, $1) OVER (ORDER BY id), ntile($2) OVER (ORDER BY id) FROM w ORDER BY id;
-- fails
-- args: [0]
SELECT id, ntile($1) OVER (ORDER BY id) FROM w ORDER BY id;
-- fails
-- args: [0]
SELECT id, nth_value(v, $1) OVER (ORDER BY id) FROM w ORDER BY id;
-- refused
SELECT sum(n) OVER (ORDER BY id ROWS 1 + 1 PRECEDING) FROM w;
-- refused
SELECT sum(n) OVER (ORDER BY n RANGE $1 PRECEDING) FROM w;
