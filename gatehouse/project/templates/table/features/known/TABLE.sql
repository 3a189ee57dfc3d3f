-- The rows as they stood at `as_of`: later rows and outcomes that were not known yet are not there.
-- The leakage check recomputes every feature from this and compares.
SELECT *{% if roles.known %} REPLACE (
{% for column in (roles.label, roles.known) %}
    CASE WHEN {{ quoted(roles.known.name) }} <= getvariable('as_of') THEN {{ quoted(column.name) }} END AS {{ quoted(column.name) }}{{ "," if not loop.last }}
{% endfor %}
){% endif %}

FROM source.{{ sql(table) }}
WHERE {{ quoted(roles.time.name) }} BETWEEN getvariable('since') AND getvariable('as_of')
