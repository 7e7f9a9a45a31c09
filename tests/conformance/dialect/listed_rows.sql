-- Functions that give rows in the list of a SELECT.
CREATE TABLE r (id integer PRIMARY KEY, a integer[], x text[], j jsonb, t text);
INSERT INTO r VALUES (1, '{3,1}', '{b,a,c}', '[{"k": 1}, {"k": 2}]', 'p,q'), (2, '{}', '{}', '[]', ''), (3, NULL, NULL, NULL, NULL), (4, '{5}', '{z}', '[{"k": 9}]', 'w');
SELECT generate_series(1, 3);
SELECT *, unnest(a) FROM r ORDER BY id, unnest;
SELECT *, generate_series(1, 2) AS n FROM r CROSS JOIN (SELECT unnest(ARRAY[7, 8]) AS s) AS s WHERE id = 1 ORDER BY s, n;
SELECT generate_series(1, 3) AS n ORDER BY n DESC;
SELECT unnest(ARRAY[1, 2]), 5 AS five;
SELECT id, unnest(a) FROM r ORDER BY id, 2;
SELECT id, unnest(a) AS e FROM r WHERE id > 1 ORDER BY e LIMIT 1;
SELECT id, unnest(a), unnest(x) FROM r ORDER BY id, 3;
SELECT id, unnest(a) * 2 + id AS twice FROM r ORDER BY twice;
SELECT id, (jsonb_array_elements(j) ->> 'k')::integer + 1 AS k FROM r ORDER BY k;
SELECT jsonb_array_elements_text('["a", "b"]') AS v;
SELECT jsonb_object_keys('{"a": 1, "b": 2}');
SELECT id, regexp_split_to_table(t, ',') FROM r ORDER BY 1, 2;
SELECT regexp_matches('abab', 'a(b)', 'g');
SELECT string_to_table('a b', ' ');
SELECT DISTINCT unnest(ARRAY[1, 1, 2]) AS e ORDER BY e;
SELECT count(*) FROM (SELECT unnest(a) FROM r) AS s;
SELECT s.e, count(*) FROM (SELECT unnest(x) AS e FROM r) AS s GROUP BY s.e ORDER BY s.e;
SELECT id FROM r WHERE 3 IN (SELECT unnest(a)) ORDER BY id;
SELECT id FROM r WHERE EXISTS (SELECT unnest(r.a)) ORDER BY id;
SELECT id, (SELECT sum(e) FROM (SELECT unnest(r.a) AS e) AS s) FROM r ORDER BY id;
SELECT r.id, generate_series(1, r.id) AS n FROM r WHERE id < 3 ORDER BY 1, 2;
SELECT generate_series('2030-01-01'::timestamp, '2030-01-03', '1 day')::date AS day;
SELECT r.*, unnest(r.a) AS e FROM r JOIN r AS s ON s.id = r.id ORDER BY r.id, e;
SELECT ARRAY(SELECT unnest(ARRAY[2, 1]) ORDER BY 1);
WITH s AS (SELECT unnest(ARRAY[1, 2]) AS n) SELECT sum(n) FROM s;
SELECT unnest(ARRAY[1, 2]) UNION ALL SELECT 9 ORDER BY 1;
INSERT INTO r (id, t) SELECT unnest(ARRAY[10, 11]), unnest(ARRAY['ten', 'eleven']) RETURNING id, t;
-- args: [[20, 21], ["a", None]]
INSERT INTO r (id, t) SELECT unnest($1::integer[]), unnest($2::text[]);
SELECT id, t FROM r WHERE id > 9 ORDER BY id;
SELECT id, unnest(a) FROM missing;
SELECT unnest(1);
SELECT unnest(a) FROM r WHERE unnest(a) > 1;
SELECT id, unnest(a, x) FROM r;
-- refused
SELECT generate_series(1, 2), generate_series(1, 3);
-- refused
SELECT jsonb_each('{"a": 1}');
-- refused
SELECT count(*), unnest(ARRAY[1, 2]);
-- refused
SELECT id, unnest(a) FROM r ORDER BY unnest(a);
SELECT CASE WHEN true THEN unnest(ARRAY[1]) END;
SELECT coalesce(unnest(ARRAY[1]), 2);

-- Counted by what a function gives: its rows come before the groups.
CREATE TABLE tagged (id integer PRIMARY KEY, tags text[], j jsonb, n integer);
INSERT INTO tagged VALUES (1, '{a,b}', '[1, 2]', 2), (2, '{b,NULL,c,b}', '[2]', 1), (3, '{}', '[]', 3), (4, NULL, NULL, NULL);
SELECT unnest(tags) AS t, count(*) FROM tagged GROUP BY t ORDER BY t;
SELECT unnest(tags) AS t, count(*) AS c, sum(id), min(n) FROM tagged WHERE id < 4 GROUP BY 1 HAVING count(*) > 0 ORDER BY c DESC, t NULLS FIRST;
SELECT count(*), unnest(tags) FROM tagged GROUP BY unnest(tags) ORDER BY 1, 2;
SELECT jsonb_array_elements_text(j) AS e, array_agg(id ORDER BY id) FROM tagged GROUP BY e ORDER BY e;
SELECT generate_series(1, n) AS s, n % 2 AS odd, count(DISTINCT id) FROM tagged GROUP BY s, odd ORDER BY s, odd;
SELECT unnest(tags) AS t FROM tagged GROUP BY t HAVING max(id) > 1 ORDER BY t LIMIT 2;
-- refused
SELECT unnest(tags) AS tags, count(*) FROM tagged GROUP BY tags;
-- refused
SELECT unnest(tags), id FROM tagged GROUP BY id, tags;
-- refused
SELECT unnest(tags) AS t, generate_series(1, 2), count(*) FROM tagged GROUP BY t;
-- fails
SELECT unnest(tags) AS t, id, count(*) FROM tagged GROUP BY t;
DROP TABLE tagged;
