-- What the order itself says. `event_timestamp` is when a value is known, not what it is about.
SELECT order_id, placed_at AS event_timestamp, category, amount
FROM staging.orders
