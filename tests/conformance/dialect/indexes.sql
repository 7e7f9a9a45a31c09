-- Indexes on expressions.
CREATE TABLE ix (id integer PRIMARY KEY, a integer, b text, n numeric(10,2), f double precision, j jsonb,
    t timestamptz, d date, v varchar(20), s timestamp, i interval);
CREATE INDEX ON ix (abs(a));
CREATE INDEX ON ix (abs(n));
CREATE INDEX ON ix (abs(f), b);
CREATE INDEX ON ix ((a / 2));
CREATE INDEX ON ix ((n::integer));
CREATE INDEX ON ix ((b::integer));
CREATE INDEX ON ix (((a + 1)::double precision));
CREATE INDEX ON ix (((j ->> 'k')::integer));
CREATE INDEX ON ix ((j -> 'k'));
CREATE UNIQUE INDEX ON ix ((n * 2));
CREATE INDEX ON ix ((b || a));
-- refused
CREATE INDEX ON ix ((b || d));
-- refused
CREATE INDEX ON ix ((t || b));
CREATE INDEX ON ix ((b || v));
CREATE INDEX ON ix ((a || ''));
CREATE INDEX ON ix ((j || j));
-- refused
CREATE INDEX ON ix ((d::text));
-- refused
CREATE INDEX ON ix ((b::date));
-- refused
CREATE INDEX ON ix ((t + '1 day'));
CREATE INDEX ON ix ((s + '1 day'));
CREATE INDEX ON ix ((d + 1));
CREATE INDEX ON ix ((lower(v)::text));
CREATE INDEX ON ix ((coalesce(a, 0)::text));
CREATE INDEX ON ix (coalesce(t, '2020-01-01'));
-- refused
CREATE INDEX ON ix (coalesce(t, s));
-- refused
CREATE INDEX ON ix (lower('x' || s));
-- refused
CREATE INDEX ON ix (('x'::text));
-- refused
CREATE TABLE fixed (c char(4) COLLATE "pg_c_utf8");
-- refused
SELECT 'a'::char(4) COLLATE "pg_c_utf8";
CREATE INDEX ON ix ((i * 2));
CREATE INDEX ON ix ((-a));
CREATE INDEX ON ix ((- n));
INSERT INTO ix (id, a, b, n, f, j) VALUES (1, -3, '7', 1.5, -2.5, '{"k": 4}'), (2, 3, '8', 2.50, 2.5, '{"k": "5"}');
INSERT INTO ix (id, n) VALUES (3, 1.50);
INSERT INTO ix (id, n) VALUES (3, 1.50) ON CONFLICT ((n * 2)) DO UPDATE SET a = 9 RETURNING id, a;
INSERT INTO ix (id, b) VALUES (4, 'x');
INSERT INTO ix (id, j) VALUES (4, '{"k": "x"}');
SELECT id FROM ix WHERE abs(a) = 3 ORDER BY id;
SELECT id FROM ix WHERE abs(n) = 1.5 ORDER BY id;
SELECT id FROM ix WHERE abs(f) = 2.5 ORDER BY id;
SELECT id FROM ix WHERE j -> 'k' = '4' ORDER BY id;
SELECT id FROM ix WHERE (j ->> 'k')::integer = 5 ORDER BY id;
SELECT id FROM ix ORDER BY abs(n) DESC, id;
ALTER TABLE ix RENAME COLUMN a TO "A";
SELECT "A" FROM ix ORDER BY id;
ALTER TABLE ix RENAME COLUMN "A" TO "A";
-- refused
ALTER TABLE ix RENAME COLUMN "A" TO "B";
DROP INDEX ix_abs_idx;
DROP INDEX ix_abs_idx1;
DROP INDEX ix_expr_idx;
DROP INDEX ix_n_idx;
DROP INDEX ix_b_idx;
DROP INDEX ix_float8_idx;
DROP INDEX ix_int4_idx;
DROP INDEX ix_lower_idx;
DROP INDEX ix_coalesce_idx;
DROP INDEX ix_coalesce_idx1;
SELECT * FROM ix ORDER BY id;
