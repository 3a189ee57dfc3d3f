-- The columns of a row. `event_timestamp` is when a value is known, not what it is about.
SELECT {{ sql(key) }}, {{ sql(roles.time.sql) }} AS event_timestamp, {% for feature in roles.features %}{{ sql(feature.sql) }}{{ ", " if not loop.last }}{% endfor %}

FROM staging.{{ sql(table) }}
