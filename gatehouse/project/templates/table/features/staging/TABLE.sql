-- The table under names that SQL takes without quotes.{staging_note}
SELECT
    {staging}
FROM raw.{sql_table}
