-- One row a decision: when it is made, its outcome, and when that is known. Rows whose label is not known are set aside.
SELECT order_id, customer_id, placed_at AS decision_time, returned = 1 AS label, known_at
FROM staging.orders
