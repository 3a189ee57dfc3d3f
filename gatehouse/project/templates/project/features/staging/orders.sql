-- Orders with the moment at which their outcome is known.
SELECT
    order_id,
    customer_id,
    category,
    amount,
    placed_at,
    CASE WHEN returned IS NOT NULL THEN settled_at END AS known_at,
    returned
FROM raw.orders
