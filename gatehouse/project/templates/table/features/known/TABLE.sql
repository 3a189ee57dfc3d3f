-- The rows as they stood at `as_of`: later rows and outcomes that were not known yet are not there.
-- The leakage check recomputes every feature from this and compares.
SELECT *{known_columns}
FROM source.{sql_table}
WHERE {raw_time} BETWEEN getvariable('since') AND getvariable('as_of')
