"""PostgreSQL's words: those that are reserved, and the names that may be called.

A reserved word that is not quoted is never a name: `SELECT user` asks PostgreSQL for the session's user, whatever
columns there are. The lists are those of PostgreSQL 18, appendix C; RESERVED is what is reserved there, also except as
function or type.
"""

# ruff: noqa: SIM905 - words are easier to read, and to compare with the appendix, without quotes around each.

from typing import Final

RESERVED: Final = frozenset(
    """
    all analyse analyze and any array as asc asymmetric authorization binary both case cast check collate collation
    column concurrently constraint create cross current_catalog current_date current_role current_schema current_time
    current_timestamp current_user default deferrable desc distinct do else end except false fetch for foreign freeze
    from full grant group having ilike in initially inner intersect into is isnull join lateral leading left like limit
    localtime localtimestamp natural not notnull null offset on only or order outer overlaps placing primary references
    returning right select session_user similar some symmetric system_user table tablesample then to trailing true union
    unique user using variadic verbose when where window with
    """.split()
)

# The rest of PostgreSQL's key words, which may be names. A word on neither list is a name and nothing else.
KEYWORDS: Final = RESERVED | frozenset(
    """
    abort absent absolute access action add admin after aggregate also alter always asensitive assertion
    assignment at atomic attach attribute backward before begin between bigint bit boolean breadth by cache call
    called cascade cascaded catalog chain char character characteristics checkpoint class close cluster coalesce
    columns comment comments commit committed compression conditional configuration conflict connection
    constraints content continue conversion copy cost csv cube current cursor cycle data database day deallocate
    dec decimal declare defaults deferred definer delete delimiter delimiters depends depth detach dictionary
    disable discard document domain double drop each empty enable encoding encrypted enforced enum error escape
    event exclude excluding exclusive execute exists explain expression extension external extract family filter
    finalize first float following force format forward function functions generated global granted greatest
    grouping groups handler header hold hour identity if immediate immutable implicit import include including
    increment indent index indexes inherit inherits inline inout input insensitive insert instead int integer
    interval invoker isolation json json_array json_arrayagg json_exists json_object json_objectagg json_query
    json_scalar json_serialize json_table json_value keep key keys label language large last leakproof least
    level listen load local location lock locked logged mapping match matched materialized maxvalue merge
    merge_action method minute minvalue mode month move name names national nchar nested new next nfc nfd nfkc
    nfkd no none normalize normalized nothing notify nowait nullif nulls numeric object objects of off oids old
    omit operator option options ordinality others out over overlay overriding owned owner parallel parameter
    parser partial partition passing password path period plan plans policy position preceding precision prepare
    prepared preserve prior privileges procedural procedure procedures program publication quote quotes range
    read real reassign recursive ref referencing refresh reindex relative release rename repeatable replace
    replica reset restart restrict return returns revoke role rollback rollup routine routines row rows rule
    savepoint scalar schema schemas scroll search second security sequence sequences serializable server session
    set setof sets share show simple skip smallint snapshot source sql stable standalone start statement
    statistics stdin stdout storage stored strict string strip subscription substring support sysid system
    tables tablespace target temp template temporary text ties time timestamp transaction transform treat
    trigger trim truncate trusted type types uescape unbounded uncommitted unconditional unencrypted unknown
    unlisten unlogged until update vacuum valid validate validator value values varchar varying version view
    views virtual volatile whitespace within without work wrapper write xml xmlattributes xmlconcat xmlelement
    xmlexists xmlforest xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable year yes zone
    """.split()
)
# Key words that PostgreSQL takes for an alias only after AS: SELECT n AS year.
AFTER_AS: Final = frozenset(
    "char character day filter hour minute month over precision second varying within without year".split()
)
# Types of PostgreSQL whose names are not key words, as far as they are accepted or refused with advice.
TYPES: Final = frozenset(
    """
    bigserial bool bpchar bytea date float4 float8 int2 int4 int8 jsonb serial smallserial timestamptz timetz uuid
    """.split()
)

# Scalar functions and aggregates of the subset.
# Functions that sqlglot must leave as they are written: it would read many of them as something of its own.
PLAIN_CALLS: Final = frozenset(
    """
    abs array_agg array_append array_length array_position array_remove bool_and bool_or btrim cardinality ceil ceiling
    char_length character_length concat concat_ws date_trunc every floor gen_random_uuid greatest jsonb_agg
    jsonb_array_length jsonb_build_array jsonb_build_object jsonb_object_agg jsonb_set jsonb_strip_nulls jsonb_typeof
    least left length lower lpad ltrim md5 mod now octet_length power random repeat replace reverse right round rpad
    rtrim sign split_part sqrt starts_with strpos substr to_jsonb to_timestamp trunc upper
    """.split()
)
FUNCTIONS: Final = PLAIN_CALLS | frozenset(
    """
    avg coalesce count extract max min nullif position string_agg substring sum trim
    """.split()
)
# PostgreSQL's operators on jsonb, beside those that numbers and texts have, too.
JSON_SYMBOLS: Final = frozenset({"->", "->>", "#>", "#>>", "#-", "@>", "<@", "?", "?|", "?&"})
# Functions that are called with OVER alone.
WINDOW_FUNCTIONS: Final = frozenset(
    """
    cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank row_number
    """.split()
)
# Words that may stand before a parenthesis: functions, types with a length, and the grammar's own.
CALLS: Final = FUNCTIONS | frozenset(
    """
    all and any as between by case cast check decimal distinct do else except exists filter from generate_series having
    in intersect into is join key left like limit not numeric offset on or order over references returning select set
    table then union unique unnest using values varchar varying when where with
    """.split()
)
# Words and signs that something must follow, and those that nothing begins with: one after the other is an empty place.
NEEDING_MORE: Final = frozenset(
    """
    , - and case collate distinct else except for from having ilike in intersect into is join like limit not offset on
    or references returning select then to union using when where window with
    """.split()
)
BEGINNING_NOTHING: Final = frozenset(
    """
    , ; ) ] and as asc collate desc else end except fetch for from having ilike in intersect into is join like limit
    offset on or returning then union using when where window
    """.split()
)
# Columns that every table of PostgreSQL has already, and SQLite's own names for a row's number.
SYSTEM_COLUMNS: Final = frozenset("ctid cmax cmin oid rowid _rowid_ tableoid xmax xmin".split())
# What RETURNING calls a row before and after the change.
SPECIAL_RELATIONS: Final = frozenset({"old", "new"})
INTERNAL_PREFIXES: Final = ("interlock_", "sqlite_", "pg_")
