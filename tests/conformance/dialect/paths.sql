-- jsonpath.
CREATE TABLE p (id integer PRIMARY KEY, j jsonb);
INSERT INTO p VALUES (1, '{"a": [1, 2, {"b": 3}], "c": {"d": "x", "e": null}, "n": 1.50, "t": true, "s": "héllo"}'), (2, '[1, "2", null, [3, 4], {"a": 5}]'), (3, '"text"'), (4, '{"items": [{"sku": "a", "n": 2, "price": 1.5}, {"sku": "b", "n": 1, "price": 20}, {"sku": "c", "price": null}]}'), (5, NULL), (6, '{}'), (7, '[[1, [2]], {"a": [{"a": 1}, [{"a": 2}]]}]');
SELECT id, jsonb_path_query_array(j, '$'), jsonb_path_query_array(j, '$.a'), jsonb_path_query_array(j, '$.*'), jsonb_path_query_array(j, '$[*]'), jsonb_path_query_array(j, '$.a[*]'), jsonb_path_query_array(j, '$.a.b'), jsonb_path_query_array(j, '$."c"."d"'), jsonb_path_query_array(j, '$.a.a'), jsonb_path_query_array(j, '$[*].a') FROM p ORDER BY id;
SELECT id, jsonb_path_query_array(j, '$[0]'), jsonb_path_query_array(j, '$[last]'), jsonb_path_query_array(j, '$[1 to 2]'), jsonb_path_query_array(j, '$[0, 2, 0]'), jsonb_path_query_array(j, '$[last - 1 to last]'), jsonb_path_query_array(j, '$[9]'), jsonb_path_query_array(j, '$[-1]'), jsonb_path_query_array(j, '$[1.9]'), jsonb_path_query_array(j, '$.a[1 to last]'), jsonb_path_query_array(j, '$[3][1]'), jsonb_path_query_array(j, '$[2 to 1]'), jsonb_path_query_array(j, '$[-5 to 1]') FROM p ORDER BY id;
SELECT id, jsonb_path_query_array(j, '$.type()'), jsonb_path_query_array(j, '$.size()'), jsonb_path_query_array(j, '$[*].type()'), jsonb_path_query_array(j, '$.a.size()'), jsonb_path_query_array(j, '$.n.floor()'), jsonb_path_query_array(j, '$.n.ceiling()'), jsonb_path_query_array(j, '(-$.n).abs()'), jsonb_path_query_array(j, '$.a[0 to 1].abs()') FROM p ORDER BY id;
SELECT id, jsonb_path_query_array(j, '$.items[*] ? (@.price > 1.5)'), jsonb_path_query_array(j, '$.items ? (@.n >= 1 && @.sku != "b").sku'), jsonb_path_query_array(j, '$.items[*] ? (exists (@.n)).sku'), jsonb_path_query_array(j, '$.items[*] ? (!exists (@.n)).sku'), jsonb_path_query_array(j, '$.items[*] ? (@.price == null)'), jsonb_path_query_array(j, '$.items[*] ? ((@.price > "a") is unknown).sku'), jsonb_path_query_array(j, '$.items[*] ? (@.sku starts with "b" || @.n == 2).price'), jsonb_path_query_array(j, '$[*] ? (@ > 0)'), jsonb_path_query_array(j, '$[*] ? (@ != 1)'), jsonb_path_query_array(j, '$ ? (@.n < 2).n') FROM p ORDER BY id;
SELECT jsonb_path_query_array('[1, 2.50, 10]', '$[*] ? (@ > 1) + 0');
SELECT jsonb_path_query_array('[1, 2.50, 10]', '-$[*]'), jsonb_path_query_array('5', '$ + 1.50 * 2'), jsonb_path_query_array('7', '($ / 2) - 1 % 3'), jsonb_path_query_array('7', '-$ + +2'), jsonb_path_query_array('{"a": 2, "b": 3}', '$.a * $.b'), jsonb_path_query_array('[2]', '$ + 1'), jsonb_path_query_array('1', '1 + 2 * 3 - 4 / 2'), jsonb_path_query_array('10', '$ / 3');
SELECT jsonb_path_query_array('[1, 2]', '$ + 1');
SELECT jsonb_path_query_array('"a"', '$ + 1');
SELECT jsonb_path_query_array('1', '$ / 0');
SELECT jsonb_path_query_array('"a"', '-$');
SELECT jsonb_path_query_array('"a"', '$.abs()');
SELECT jsonb_path_query_array('[1]', '$["a"]');
SELECT jsonb_path_query_array('[1]', '$[last]'), jsonb_path_query_array('{"a": 1}', 'lax $.b.c[3]'), jsonb_path_query_array('{"a": 1}', 'lax $.a[0]');
SELECT jsonb_path_query_array('{"a": 1}', 'strict $.b');
SELECT jsonb_path_query_array('{"a": 1}', 'strict $.a[0]');
SELECT jsonb_path_query_array('[1]', 'strict $[1]');
SELECT jsonb_path_query_array('[{"a": 1}]', 'strict $.a');
SELECT jsonb_path_query_array('1', 'strict $.size()');
SELECT jsonb_path_query_array('{"a": [1, 2]}', 'strict $.a[*] ? (@ > 1)'), jsonb_path_query_array('{"a": [1, "x"]}', 'strict $.a[*] ? (@ > 0)'), jsonb_path_query_array('[{"a": 1}, {"b": 2}]', 'strict $[*] ? (@.a == 1)'), jsonb_path_query_array('[{"a": 1}, {"b": 2}]', 'strict $[*] ? (exists (@.a))');
SELECT jsonb_path_query_array('{"a": 1}', 'strict $.b', '{}', true), jsonb_path_query_first('{"a": [1, 2]}', '$.a[*]'), jsonb_path_query_first('{"a": []}', '$.a[*]'), jsonb_path_query_first('"a"', '$ + 1', '{}', true), jsonb_path_query_array('[1, "a", 2]', '$[*].abs()', '{}', true);
SELECT jsonb_path_query_array('[1, 2, 3]', '$[*] ? (@ >= $min && @ <= $max)', '{"min": 2, "max": 3}'), jsonb_path_query_array('{"a": "xy"}', '$.a ? (@ starts with $p)', '{"p": "x"}'), jsonb_path_query_array('1', '$x', '{"x": [1]}');
SELECT jsonb_path_query_array('1', '$missing');
SELECT jsonb_path_query_array('1', '$x', '[1]');
SELECT id, jsonb_path_exists(j, '$.a'), jsonb_path_exists(j, '$.a[*] ? (@ > 1)'), jsonb_path_exists(j, 'strict $.a', '{}', true), j @? '$.items[*] ? (@.sku == "a")', j @? 'strict $.a', j @@ '$.n == 1.5', j @@ '$.a[*] > 1', j @@ '$.a', j @@ 'exists ($.c)', j @@ '$.s starts with "hé"' FROM p ORDER BY id;
SELECT jsonb_path_match('{"a": 1}', '$.a == 1'), jsonb_path_match('{"a": 1}', '$.a > "x"'), jsonb_path_match('{"a": 1}', '$.a == 1 && !($.a == 2)'), jsonb_path_match('{"a": 1}', '$.a', '{}', true), jsonb_path_match('true', '$'), jsonb_path_match('null', '$'), jsonb_path_match('1', '($ == 1) is unknown');
SELECT jsonb_path_match('{"a": 1}', '$.a');
SELECT jsonb_path_match('[]', '$[*]');
SELECT jsonb_path_query('{"a": [1, 2]}', '$.a[*]');
SELECT q FROM jsonb_path_query('{"a": [1, {"b": null}]}', '$.a[*]') AS q;
SELECT p.id, q.v, q.n FROM p, jsonb_path_query(p.j, '$.items[*].sku') WITH ORDINALITY AS q (v, n) ORDER BY p.id, q.n;
SELECT jsonb_path_query('[1, "a"]', '$[*] == 1'), jsonb_path_exists('1', '$ > 5'), jsonb_path_query_array('[1, 2]', '$[*] > 1');
SELECT jsonb_path_query_array('{"a b": 1, "é": 2, "x\"y": 3, "type": 4, "last": 5, "true": 6}', '$."a b"'), jsonb_path_query_array('{"é": 2}', '$.é'), jsonb_path_query_array('{"x\"y": 3}', '$."x\"y"'), jsonb_path_query_array('{"type": 4}', '$.type'), jsonb_path_query_array('{"last": 5}', '$.last'), jsonb_path_query_array('{"true": 6}', '$.true'), jsonb_path_query_array('"é"', '$ == "\u00e9"'), jsonb_path_query_array('1', '"a"'), jsonb_path_query_array('1', 'null'), jsonb_path_query_array('[1]', '$[*] ? (true == true)');
SELECT jsonb_path_query_array('[1, 1.0, 1.00]', '$[*] ? (@ == 1)'), jsonb_path_query_array('[true, false]', '$[*] ? (@ < true)'), jsonb_path_query_array('["a", "B", "é"]', '$[*] ? (@ > "Z")'), jsonb_path_query_array('[null, 1]', '$[*] ? (@ <= null)'), jsonb_path_query_array('[null, 1]', '$[*] ? (@ <> null)'), jsonb_path_query_array('[[1], {}]', '$[*] ? (@ == @)');
SELECT id FROM p WHERE j @? '$.items[*] ? (@.price >= 20)' OR j @@ '$.t == true' ORDER BY id;
-- args: [{"a": [1, 5]}, "$.a[*] ? (@ > 2)"]
SELECT jsonb_path_query_array($1::jsonb, $2);
SELECT jsonb_path_query('1', '');
SELECT jsonb_path_query('1', '$.');
SELECT jsonb_path_query('1', '$[');
SELECT jsonb_path_query('1', '$ == ');
SELECT jsonb_path_query('1', '$ ? (1)');
SELECT jsonb_path_query('1', '$ && $');
SELECT jsonb_path_query('1', '!$');
SELECT jsonb_path_query('1', '$ == 1 == 2');
SELECT jsonb_path_query('1', '($ == 1) + 2');
SELECT jsonb_path_query('1', 'last');
SELECT jsonb_path_query('1', '$ $');
SELECT '1'::jsonb @? 'x'::text;
-- refused
SELECT jsonb_path_query('1', '$.**');
-- refused
SELECT jsonb_path_query('"a"', '$ ? (@ like_regex "a")');
-- refused
SELECT jsonb_path_query('"2030-01-01"', '$.datetime()');
-- refused
SELECT jsonb_path_query('{"a": 1}', '$.keyvalue()');
SELECT jsonb_path_query_array('[{"type": 4, "size": 5}]', '$.type'), jsonb_path_query_array('[{"type": 4, "size": 5}]', '$.size'), jsonb_path_query_array('[{"type": 4}]', '$.type.type()');
SELECT jsonb_path_exists(j, '$[') FROM p WHERE false;
SELECT id FROM p WHERE j @? 'nonsense here' AND false;
