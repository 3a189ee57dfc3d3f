-- The columns of a row. `event_timestamp` is when a value is known, not what it is about.
SELECT {sql_key}, {time} AS event_timestamp, {feature_columns}
FROM staging.{sql_table}
