-- One row a decision: when it is made, its outcome, and when that is known.
SELECT {{ sql(key) }}, {{ sql(roles.time.sql) }} AS decision_time, {{ (sql(roles.label.sql) ~ " " ~ roles.positive)|trim }} AS label, {{ sql((roles.known or roles.time).sql) }} AS known_at{% if roles.group %}, {{ sql(roles.group.sql) }}{% endif %}

FROM staging.{{ sql(table) }}
