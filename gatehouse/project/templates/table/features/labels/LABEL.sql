-- One row a decision: when it is made, its outcome, and when that is known.
SELECT {sql_key}, {time} AS decision_time, {outcome_sql} AS label, {known_at} AS known_at{group_column}
FROM staging.{sql_table}
