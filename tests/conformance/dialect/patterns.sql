-- Regular expressions: the longest match, parts in parentheses, flags, and what a lane refuses.
CREATE TABLE p (id bigint PRIMARY KEY, x text, v varchar(20), n integer);
INSERT INTO p VALUES (1, 'foobarbaz', 'abc', 1), (2, 'one 22 three', 'A-1', 2), (3, '', '', 3), (4, NULL, NULL, NULL), (5, 'a.b*c', 'x@y.org', 5), (6, 'naïve €5', 'é', 6);
SELECT id, x ~ 'b', x !~ 'b', x ~* 'FOO', x !~* 'FOO', v ~ '^[a-z]+$', v ~ x FROM p WHERE id < 5 ORDER BY id;
SELECT id FROM p WHERE x ~ 'b.*b' ORDER BY id;
SELECT id FROM p WHERE x ~ '^$' OR v ~ '@' ORDER BY id;
SELECT 'abc' ~ 'a|x', 'abc' ~ '(?:b|c){2}', 'abc' ~ '^b', 'abc' ~ 'c$', 'a' || chr(10) ~ 'a$', 'a' || chr(10) || 'b' ~ 'a.b', 'abc' ~ '', '' ~ '', NULL ~ 'a', 'a' ~ NULL;
SELECT 'a.b' ~ 'a\.b', 'axb' ~ 'a\.b', 'a]b' ~ '[]]', 'a-b' ~ '[a-]-', 'a^b' ~ '[b^]', 'a}b' ~ '}', 'a{b' ~ 'a{b', 'x]' ~ ']', 'a\b' ~ 'a\\b', 'a\b' ~ '[\\]';
SELECT 'ab12 _x' ~ '^\w+\s\w+$', 'ab' ~ '\d', '12' ~ '^\d\d$', 'a b' ~ '\S\s\S', 'ab' ~ '\W', 'a1' ~ '[[:alpha:]][[:digit:]]', 'a_' ~ '^[\w]+$', 'a-b' ~ '[^\w]', 'Fe' ~ '^[[:upper:]][[:lower:]]$', '!' ~ '[[:punct:]]', 'fF9' ~ '^[[:xdigit:]]+$';
SELECT 'one two' ~ '\mtwo\M', 'one two' ~ '\yne', 'one two' ~ '\Yne', 'one' ~ '\Aone\Z', 'a' ~ '\m', '-' ~ '\m', 'ab' ~ 'a\Mb';
SELECT 'ABC' ~* 'b', 'abc' ~* '[A-B]C', 'abc' ~* '[^B]C', 'ABC' ~ '(?i)abc', 'aBC' ~* '^[[:upper:]]+$', 'É' ~ 'é', 'É' ~ '.', 'é5' ~ '\d', 'é 5' ~ '\s\d', 'né' ~ 'né$';
SELECT 'aaa' ~ '^a{3}$', 'aaa' ~ '^a{2}$', 'aaa' ~ '^a{2,}$', 'aaa' ~ '^a{1,2}$', 'aaa' ~ '^a{0,3}?$', 'ab' ~ '^(?:a|ab)(?:c|bcd)?$', 'aa' ~ '^(a?){3}$';
SELECT 'a' ~ '(', 1;
SELECT 'a' ~ ')';
SELECT 'a' ~ '[a';
SELECT 'a' ~ 'a**';
SELECT 'a' ~ '*a';
SELECT 'a' ~ '^*';
SELECT 'a' ~ 'a{2,1}';
SELECT 'a' ~ 'a{256}';
SELECT 'a' ~ 'a{1';
SELECT 'a' ~ '[b-a]';
SELECT 'a' ~ 'a\';
-- refused
SELECT id FROM p WHERE false AND x ~ '(';
SELECT 1 ~ 'a';
SELECT n ~ '1' FROM p;
-- refused
SELECT 'aa' ~ '(a)\1';
-- refused
SELECT 'ab' ~ 'a(?=b)';
-- refused
SELECT 'ab' ~ 'a(?!c)';
-- refused
SELECT 'a' ~ '***=a';
SELECT 'é' ~ '\w';
SELECT 'é' ~ '\ya';
SELECT 'É' ~* 'é';
SELECT 'a' ~* 'é';
-- refused
SELECT 'a' ~ '\x61';
-- refused
SELECT 'a' ~ '[[.a.]]';
-- refused
SELECT 'a' ~ '((((a{200}){200}){200}){200})';
-- Replacement.
SELECT regexp_replace('foobarbaz', 'b..', 'X'), regexp_replace('foobarbaz', 'b..', 'X', 'g'), regexp_replace('foobarbaz', 'b(..)', 'X\1Y', 'g'), regexp_replace('A PostgreSQL function', 'a|e|i|o|u', 'X', 1, 0, 'i'), regexp_replace('A PostgreSQL function', 'a|e|i|o|u', 'X', 1, 3, 'i');
SELECT regexp_replace('abc', 'B', '[\&]', 'i'), regexp_replace('abc', 'b', '\\'), regexp_replace('abc', 'b', '\q\'), regexp_replace('abc', 'b', '\0'), regexp_replace('abc', '(x)?b', '<\1>'), regexp_replace('abc', 'b', '\1'), regexp_replace('abc', '', '-', 'g'), regexp_replace('baaac', 'a*', 'X', 'g'), regexp_replace('abc', 'x', 'y'), regexp_replace('', '^', 'y'), regexp_replace('a1b22', '\d+', '');
SELECT regexp_replace('<a><b>', '<.*?>', 'T'), regexp_replace('<a><b>', '<.*>', 'T'), regexp_replace('  a  b ', '^\s+|\s+$', '', 'g'), regexp_replace('a  b', ' +', ' ', 'g'), regexp_replace('2030-01-02', '(\d+)-(\d+)-(\d+)', '\3.\2.\1'), regexp_replace('foo.bar', '[^[:alnum:]]', '_', 'g'), regexp_replace('xaxbx', 'x', '-', 3), regexp_replace('xaxbx', 'x', '-', 2, 2), regexp_replace('xaxbx', 'x', '-', 9, 1), regexp_replace('xaxbx', 'x', '-', 2, 0);
SELECT id, regexp_replace(x, '[aeiou]+', '*', 'g'), regexp_replace(v, 'b', n::text) FROM p ORDER BY id;
SELECT regexp_replace(NULL, 'a', 'b'), regexp_replace('a', NULL, 'b'), regexp_replace('a', 'a', NULL), regexp_replace('a', 'a', 'b', NULL::text);
SELECT regexp_replace('a', 'a', 'b', '1');
SELECT regexp_replace('a', 'a', 'b', 'z');
SELECT regexp_replace('a', 'a', 'b', 0, 1);
SELECT regexp_replace('a', 'a', 'b', 1, -1);
-- refused
SELECT regexp_replace('a b', 'a (?#no) b', 'b', 'x');
-- refused
SELECT regexp_replace('aab', 'a*?b+', 'x');
-- refused
SELECT regexp_replace('ab', '(a)*b', '\1');
-- Parts.
SELECT regexp_match('foobarbequebaz', 'bar.*que'), regexp_match('foobarbequebaz', '(bar)(beque)'), regexp_match('abc', 'x'), regexp_match('ab', '(a)|(b)'), regexp_match('ab', '(x)?(b)'), regexp_match('ABC', 'b', 'i'), regexp_match('abcd', '(a|ab)(c|bcd)(d*)'), regexp_match('abcd', '(?:a|ab)(?:c|bcd)(d*)'), regexp_match('aabb', 'a*(?:ab)?(b*)'), regexp_match('abab', '(ab|a|b)+'), (regexp_match('k=v', '(\w+)=(\w+)'))[2];
SELECT regexp_match('aXbXc', '^(.*?)X'), regexp_match('aXbXc', '^(.*)X'), regexp_match('', '()'), regexp_match('', ''), regexp_match(NULL, 'a'), regexp_match('a', NULL), regexp_match('x1y2', '([a-z])(\d)', 'c');
SELECT regexp_match('a', 'a', 'g');
SELECT substring('foobar' from 'o.b'), substring('foobar' from 'o(.)b'), substring('foobar' from '(x)?o'), substring('foobar', 'b.*'), substring('foobar' from 'z'), substring(NULL from 'a'), substring('foobar' from 2), substring('aXbX' from 'a(.*?)X');
SELECT id, substring(x from '[0-9]+'), substring(v from '@(.*)$') FROM p ORDER BY id;
SELECT regexp_like('abc', 'B'), regexp_like('abc', 'B', 'i'), regexp_like(NULL, 'a'), regexp_like('abc', '^a*?b');
SELECT regexp_like('abc', 'b', 'g');
SELECT regexp_count('foobarbaz', 'ba'), regexp_count('aaa', 'a', 2), regexp_count('AaA', 'a', 1, 'i'), regexp_count('abc', ''), regexp_count('', ''), regexp_count('abc', 'x'), regexp_count('abc', 'a', 9), regexp_count(NULL, 'a');
SELECT regexp_count('a', 'a', 0);
SELECT regexp_substr('foobarbaz', 'ba.'), regexp_substr('foobarbaz', 'ba.', 1, 2), regexp_substr('foobarbaz', 'BA(.)', 1, 2, 'i', 1), regexp_substr('foobarbaz', 'ba.', 5), regexp_substr('a', 'b'), regexp_substr('a', 'a', 1, 1, '', 1), regexp_substr('a', 'a', 1, 1, '', 2), regexp_substr('a', '(a)', 1, 1, '', 2), regexp_substr(NULL, 'a');
SELECT regexp_substr('a', 'a', 1, 0);
SELECT regexp_substr('a', 'a', 1, 1, '', -1);
SELECT regexp_split_to_array('the quick  fox', '\s+'), regexp_split_to_array('abc', ''), regexp_split_to_array('a,b,', ','), regexp_split_to_array('', ','), regexp_split_to_array('aXbxc', 'x', 'i'), regexp_split_to_array('abc', 'z'), regexp_split_to_array(NULL, 'a'), regexp_split_to_array('a b', '\s*');
SELECT regexp_split_to_array('a', 'a', 'g');
-- args: ["^o", "e"]
SELECT id FROM p WHERE x ~ $1 AND x ~* $2 ORDER BY id;
-- args: ["[0-9]+", "#"]
SELECT regexp_replace(x, $1, $2, 'g') FROM p ORDER BY id;
CREATE TABLE checked (code text CHECK (code ~ '^[A-Z]{2}\d+$'));
INSERT INTO checked VALUES ('AB1'), (NULL) RETURNING code;
INSERT INTO checked VALUES ('ab1');
UPDATE checked SET code = regexp_replace(code, '\d', '99') RETURNING code;
