-- Many rows in one INSERT, as object mappers send them.
CREATE TABLE row (id bigserial PRIMARY KEY, a integer, b varchar(5), c numeric(5,1), at timestamptz);
-- args: [[1, 2], ["x", "y"]]
INSERT INTO row (a, b) SELECT * FROM UNNEST($1::integer[], $2::varchar[]) RETURNING id, a, b;
INSERT INTO row (a, b, c) SELECT * FROM UNNEST(ARRAY[3, 4], ARRAY['p', NULL], '{1.25,2}'::numeric[]) RETURNING a, b, c;
-- args: [[5, 6], ["v", "w"]]
INSERT INTO row (a, b) SELECT * FROM UNNEST(($1)::integer[], ($2)::varchar[]) ON CONFLICT DO NOTHING RETURNING id;
SELECT * FROM unnest(ARRAY[1, 2], ARRAY['x']);
SELECT * FROM unnest(ARRAY[1, 2], ARRAY['x']) AS u;
SELECT u.* FROM unnest(ARRAY[1, 2], ARRAY['x']) AS u (a);
SELECT * FROM unnest(ARRAY[1, 2], ARRAY['x']) WITH ORDINALITY;
-- fails
SELECT unnest FROM unnest(ARRAY[1, 2], ARRAY['x']);
-- args: [7, "m", 8, "n"]
INSERT INTO row (a, b) SELECT p0::INTEGER, p1::VARCHAR FROM (VALUES ($1::integer, $2::varchar, 0), ($3::integer, $4::varchar, 1)) AS imp_sen(p0, p1, sen_counter) ORDER BY sen_counter RETURNING row.id, row.id AS id__1;
INSERT INTO row (b) SELECT b FROM (VALUES ('zz', 1), ('yy', 2)) AS v (b, n) ORDER BY n DESC LIMIT 1 RETURNING b;
INSERT INTO row (c) SELECT DISTINCT x FROM (VALUES (1.24), (1.2), (1.21)) AS v (x) ORDER BY x RETURNING id, c;
INSERT INTO row (b) SELECT 'a' UNION SELECT 'b' ORDER BY 1 RETURNING id, b;
INSERT INTO row (a, c) SELECT 1, 2.55 UNION ALL SELECT 2, 3 RETURNING a, c;
INSERT INTO row (a, b) VALUES (1, 'q'), (2, 'r') RETURNING id, a;
SELECT count(*), max(id) FROM row;
CREATE INDEX row_a ON row USING btree (a);
CREATE INDEX row_b ON row USING hash (b);
-- fails
CREATE UNIQUE INDEX row_c ON row USING hash (b);
CREATE SCHEMA IF NOT EXISTS public;
-- fails
CREATE SCHEMA public;
-- refused
CREATE SCHEMA other;
-- args: [[1], ["far too long"]]
-- fails
INSERT INTO row (a, b) SELECT * FROM UNNEST($1::integer[], $2::varchar[]);
-- fails
INSERT INTO row (b) SELECT 'too long' UNION SELECT 'b';
