-- The orders as they stood at `as_of`: later ones are not there, outcomes that were not settled are not known.
-- The leakage check recomputes every feature from this and compares.
SELECT * REPLACE (
    CASE WHEN settled_at <= getvariable('as_of') THEN returned END AS returned,
    CASE WHEN settled_at <= getvariable('as_of') THEN settled_at END AS settled_at
)
FROM source.orders
WHERE placed_at BETWEEN getvariable('since') AND getvariable('as_of')
