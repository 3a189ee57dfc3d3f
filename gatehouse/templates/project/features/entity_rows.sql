-- One row a decision: when it is made, the label, and when the label is known. `set_aside` says why a row is not used.
SELECT
    order_id,
    customer_id,
    placed_at AS decision_time,
    returned = 1 AS label,
    known_at AS label_time,
    CASE
        WHEN known_at IS NULL THEN 'outcome not settled'
        WHEN known_at > getvariable('as_of') THEN 'outcome not known yet'
    END AS set_aside
FROM staging.orders
