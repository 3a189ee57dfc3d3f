-- The table under names that SQL takes without quotes.{% if staged|selectattr("infinite")|list %} Infinite values become nulls.{% endif %}{% if not roles.key %} The key is made of the row's values: equal rows are numbered.{% endif %}

SELECT
{% if not roles.key %}
{% set values = staged|rejectattr("name", "in", [roles.label.name, roles.known.name if roles.known else ""])|map(attribute="name")|map("quoted")|join(", ") %}
{% set digest = "md5(row(" ~ values ~ ")::VARCHAR)" %}
{# In an order that does not depend on the label alone, so that the number does not tell the outcome. #}
    {{ digest }} || '-' || row_number() OVER (PARTITION BY {{ digest }} ORDER BY md5(concat({{ digest }}, {{ quoted(roles.label.name) }}))) AS row_key,
{% endif %}
{% for column in staged %}
{% set alias = sql(key if roles.key and column.name == roles.key.name else column.sql) %}
{% set raw = quoted(column.name) %}
    {%+ if column.infinite %}if(isfinite({{ raw }}), {{ raw }}, NULL) AS {{ alias }}{% elif alias in (column.name, raw) %}{{ alias }}{% else %}{{ raw }} AS {{ alias }}{% endif %}{{ "," if not loop.last }}
{% endfor %}
FROM raw.{{ sql(table) }}
