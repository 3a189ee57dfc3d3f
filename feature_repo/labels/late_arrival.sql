-- One row a flight: the moment at which its delay is predicted, and its outcome with the moment at which it landed.
--
-- Decision: two hours before the scheduled departure. Label: arrival more than 15 minutes late, known at the landing.
-- Cancelled and diverted flights have no arrival delay and are set aside, so the model answers "if it arrives, is it
-- late?". That also keeps tail numbers honest: every flight without one was cancelled.
SELECT
    flight_id,
    carrier,
    flight,
    origin,
    dest,
    tailnum,
    decision_time,
    arr_delay > 15 AS label,
    landed_at,
    CASE
        WHEN departed_at IS NULL THEN 'cancelled'
        WHEN arr_delay IS NULL THEN 'diverted'
        WHEN landed_at IS NULL THEN 'unknown landing time'
    END AS no_outcome
FROM staging.flights
