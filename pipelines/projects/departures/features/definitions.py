"""The features of the ranking: what is known of a departure an hour before the hour in which it is to leave.

The query of a view is in views/<name>.sql, that of the label in labels/<name>.sql.
"""

from datetime import timedelta

from gatehouse.features.definitions import Available, Entity, FeatureService, FeatureView, LabelView, Source

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)

# Schedules are public a day ahead, so a row may tell something a day before its hour.
flights = Source(table="flights", event_time="time_hour", lead=DAY)

departure = Entity(name="departure")
airport_hour = Entity(name="airport_hour")
carrier = Entity(name="carrier")
dest = Entity(name="dest")
tailnum = Entity(name="tailnum")

timetable = FeatureView(
    name="timetable",
    description="The schedule of a departure, public a day ahead.",
    entities=("departure",),
    available=Available("event_timestamp"),
    ttl=2 * DAY,
    window=timedelta(0),
    features={
        "airport": "categorical",
        "airline": "categorical",
        "destination": "categorical",
        "departure_hour": "numeric",
        "departure_minute": "numeric",
        "distance": "numeric",
    },
)

# Four weeks of departures, each up to two days after its hour.
carrier_record = FeatureView(
    name="carrier_record",
    description="How the carrier's departures for the same airport did over the last four weeks.",
    entities=("carrier", "dest"),
    available=Available("event_timestamp"),
    ttl=14 * DAY,
    window=31 * DAY,
    features={"carrier_late_rate_28d": "numeric", "carrier_mean_delay_28d": "numeric"},
)

# Stale after twelve hours, since only departures from New York are seen.
aircraft_before = FeatureView(
    name="aircraft_before",
    description="The last departure of the aircraft.",
    entities=("tailnum",),
    available=Available("event_timestamp"),
    ttl=12 * HOUR,
    window=3 * DAY,
    features={"last_departure_delay": "numeric", "last_departure_distance": "numeric"},
)

departure_delay = LabelView(
    name="departure_delay",
    description="0 to 3: within 15 minutes, an hour, two hours, later.",
    entities=("departure", "airport_hour", "carrier", "dest", "tailnum"),
    group="airport_hour",
    arrives=Available("departed_at"),
    task="ranking",
    set_aside="no_outcome",
)

departure_order = FeatureService(name="departure_order", views=("timetable", "carrier_record", "aircraft_before"))
