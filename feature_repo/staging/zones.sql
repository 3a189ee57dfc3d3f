-- The time zone of every airport, with the four of the Caribbean that the airports table lacks.
SELECT faa AS airport, tzone AS zone FROM raw.airports
UNION ALL
SELECT airport, 'America/Puerto_Rico' AS zone
FROM (VALUES ('BQN'), ('PSE'), ('SJU'), ('STT')) AS missing (airport)
WHERE airport NOT IN (SELECT faa FROM raw.airports)
