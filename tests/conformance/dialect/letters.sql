-- Letters beyond ASCII, in PostgreSQL's builtin locale C.UTF-8.
CREATE TABLE l (id integer PRIMARY KEY, x text, UNIQUE (x));
CREATE UNIQUE INDEX l_lower ON l (lower(x));
INSERT INTO l VALUES (1, 'Straße ÉCOLE'), (2, 'İSTANBUL ıi'), (3, 'ΣΑΣ σας'), (4, 'ǅǆǄ ǈ'), (5, 'ſtop Kelvin Å'), (6, '日本 ⓐⒶ Ⅷ'), (7, 'ﬁ ŉ ΐ'), (8, 'ჯა Ა'), (9, '𐐀𐐨 ﬀ'), (10, 'a1éÉb_Éc-éd'), (11, 'Жук жУК'), (12, 'ᾳᾼ ΐ'), (13, '٣٤ ½ ²'), (14, 'x y　z' || chr(133));
SELECT id, lower(x), upper(x), initcap(x), length(lower(x)) FROM l ORDER BY id;
INSERT INTO l VALUES (20, 'STRAßE école');
INSERT INTO l VALUES (20, 'STRASSE école');
SELECT id, x ILIKE '%É%', x ILIKE '%σΑς', x ILIKE 'straẞe%', x ILIKE '_СTANBUL%', x ILIKE 'i%', x NOT ILIKE '%ж%' FROM l ORDER BY id;
SELECT 'aa%' ILIKE 'aA%' ESCAPE 'A', 'aA%' ILIKE 'AA%' ESCAPE 'a', 'É%' ILIKE 'éÄ%' ESCAPE 'Ä', 'é%' ILIKE 'Éä%' ESCAPE 'Ä', 'a\b' ILIKE 'A\\B', 'a\b' ILIKE 'A\B' ESCAPE 'x', 'ab' ILIKE 'Ax\B' ESCAPE 'x', 'a\b' ILIKE 'Ax\B' ESCAPE 'x';
SELECT id, x ~* 'é', x ~* 'ß', x ~* 'i', x ~* 'İ', x ~* 'ı', x ~* 'k', x ~* 'K', x ~* 'å', x ~* 'Å', x ~* 'ſ', x ~* 's' FROM l ORDER BY id;
SELECT id, x ~* 'ǅ', x ~* '[ǅ]', x ~* 'ǆ', x ~* '[ǆ]', x ~* 'Ǆ', x ~* 'σ', x ~* 'ς', x ~* '[σ]', x ~* '[ς-σ]', x ~* '[à-ö]', x ~* '[А-Я]', x ~* '^[^а-я ]+$' FROM l ORDER BY id;
SELECT id, x ~ '\w{5}', x ~ '^\w+$', x ~ '[[:alpha:]]+', x ~ '[[:upper:]]{2}', x ~ '[[:lower:]]{2}', x ~* '[[:lower:]]{6}', x ~* '[[:upper:]]{6}', x ~ '\d', x ~ '[[:punct:]]', x ~ '\s', x ~ '[[:space:]]\w', x ~ '[[:blank:]]' FROM l ORDER BY id;
SELECT id, regexp_replace(x, '\w+', '<\&>', 'g'), regexp_replace(x, '\W+', '_', 'g'), regexp_match(x, '\m\w'), regexp_count(x, '\y'), regexp_replace(x, '\s', '·', 'g'), regexp_match(x, '(é|σ)', 'i') FROM l ORDER BY id;
SELECT id, regexp_split_to_array(x, '\s+'), regexp_substr(x, '[[:upper:]]+'), substring(x from '[^[:upper:]]+') FROM l ORDER BY id;
SELECT id FROM l WHERE lower(x) = lower('STRAßE éCOLE') OR upper(x) = 'ЖУК ЖУК' ORDER BY id;
SELECT x FROM l ORDER BY x;
SELECT min(x), max(x), min(lower(x)) FROM l;
SELECT initcap('o''neil mcdonald-smith éa_éb 3ab ÀB٣a'), initcap(''), initcap('ǆ ﬁ ß');
SELECT lower(NULL), upper(''), lower('ÀÉ' || chr(8490)), upper(chr(305)), upper(chr(383)), lower(chr(304));
-- Collations.
SELECT id FROM l ORDER BY x COLLATE "C" DESC LIMIT 3;
SELECT id FROM l WHERE x COLLATE "C" > 'z' COLLATE "C" ORDER BY lower(x COLLATE "pg_c_utf8");
SELECT id FROM l ORDER BY id COLLATE "C";
SELECT 'É' COLLATE "pg_c_utf8" ILIKE 'é', upper('é' COLLATE pg_catalog."default");
-- refused
SELECT lower(x COLLATE "C") FROM l;
-- refused
SELECT x COLLATE "C" ILIKE 'É' FROM l;
-- refused
SELECT id FROM l ORDER BY x COLLATE "de-x-icu";
-- refused
CREATE TABLE k (x text COLLATE "C");
CREATE TABLE k (x text COLLATE "pg_c_utf8");
CREATE INDEX k_x ON k (x COLLATE "C");
