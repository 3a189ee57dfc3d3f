-- Small expressions that the staging and view queries share.
--
-- Of a time with a zone DuckDB asks a calendar, for every row: what needs none counts microseconds, or goes without.

-- A time in UTC, without its zone.
CREATE MACRO utc(moment) AS make_timestamp(epoch_us(moment));

-- The time so many minutes later.
CREATE MACRO minutes_after(moment, minutes) AS make_timestamptz(epoch_us(moment) + 60000000::BIGINT * minutes);

-- Minutes after midnight of an hhmm clock integer; 2400 is 1440, the midnight that ends the day.
CREATE MACRO minutes_of_clock(hhmm) AS (hhmm // 100) * 60 + hhmm % 100;

-- The first moment after `start` (UTC) at which a clock in `zone` shows `clock` minutes after midnight.
CREATE MACRO next_clock(start, zone, clock) AS
    (date_trunc('day', start AT TIME ZONE zone)
        + to_minutes(CASE
            WHEN date_trunc('day', start AT TIME ZONE zone) + to_minutes(clock) <= start AT TIME ZONE zone
            THEN clock + 1440 ELSE clock END)) AT TIME ZONE zone;

-- The first point of a time grid at which something known at `moment` is known: never before it.
CREATE MACRO grid_point(step, moment) AS
    make_timestamptz(epoch_us(time_bucket(step, utc(moment) - INTERVAL 1 MICROSECOND) + step));

-- A share shrunk towards `prior` by as much as `weight` observations would; defined also where nothing was observed.
CREATE MACRO shrunk(total, observed, prior, weight) AS (total + prior * weight) / (observed + weight);
