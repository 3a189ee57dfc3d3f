-- What a customer's settled orders tell, at each moment at which one was settled.
SELECT DISTINCT
    customer_id,
    known_at AS event_timestamp,
    count(*) OVER so_far AS settled_orders,
    sum(returned) OVER so_far AS returned_orders
FROM staging.orders
WHERE known_at IS NOT NULL
WINDOW so_far AS (PARTITION BY customer_id ORDER BY known_at)
