"""The features of the delay model: what is known two hours before the scheduled departure of a flight from New York.

The query of a view is in views/<name>.sql, the query of the label in labels/<name>.sql.
"""

from datetime import timedelta

from gatehouse.features.definitions import Available, Entity, FeatureService, FeatureView, LabelView, Source

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
# Flights are delivered daily, complete a day after their hour; a view older than that has missed a delivery.
DELIVERED = 3 * DAY

# Schedules are public a day ahead, so a row of the flights table may tell something a day before its hour.
flights = Source(table="flights", event_time="time_hour", lead=DAY)
weather = Source(table="weather", event_time="time_hour")

flight_id = Entity(name="flight_id")
carrier = Entity(name="carrier")
flight = Entity(name="flight", type="int64")
origin = Entity(name="origin")
dest = Entity(name="dest")
tailnum = Entity(name="tailnum")

flight_schedule = FeatureView(
    name="flight_schedule",
    description="The schedule of a flight, public a day ahead.",
    entities=("flight_id",),
    available=Available("event_timestamp"),
    freshness=DELIVERED,
    ttl=2 * DAY,
    window=timedelta(0),
    features={
        "airline": "categorical",
        "airport": "categorical",
        "destination": "categorical",
        "weekday": "categorical",
        "departure_hour": "categorical",
        "departure_minute": "numeric",
        "distance": "numeric",
        "scheduled_block": "numeric",
        "departures_nearby": "numeric",
    },
)

# Four weeks of landings, each up to two days after the hour of its flight.
flight_record = FeatureView(
    name="flight_record",
    description="How the same flight number did over the last four weeks.",
    entities=("carrier", "flight", "origin"),
    available=Available("event_timestamp"),
    freshness=DELIVERED,
    ttl=14 * DAY,
    window=30 * DAY,
    features={"flight_late_rate_28d": "numeric", "flight_mean_delay_28d": "numeric"},
)

aircraft = FeatureView(
    name="aircraft",
    description="What the registry says about an aircraft. It has no dates, so it counts as always known.",
    entities=("tailnum",),
    static=True,
    features={
        "aircraft_built": "numeric",
        "aircraft_seats": "numeric",
        "aircraft_engines": "numeric",
        "aircraft_type": "categorical",
    },
)

# Stale after twelve hours, since only departures from New York are seen.
aircraft_last_leg = FeatureView(
    name="aircraft_last_leg",
    description="The last completed leg of the aircraft.",
    entities=("tailnum",),
    available=Available("event_timestamp"),
    freshness=DELIVERED,
    ttl=12 * HOUR,
    window=2 * DAY,
    features={"last_leg_delay": "numeric", "last_leg_distance": "numeric"},
)

origin_weather = FeatureView(
    name="origin_weather",
    description="The weather of the last completed hour at the origin.",
    entities=("origin",),
    available=Available("event_timestamp"),
    freshness=DELIVERED,
    ttl=3 * HOUR,
    window=6 * HOUR,
    features={
        "humidity": "numeric",
        "dew_point_spread": "numeric",
        "wind_speed": "numeric",
        "wind_north": "numeric",
        "wind_east": "numeric",
        "pressure": "numeric",
        "pressure_change_3h": "numeric",
        "visibility": "numeric",
        "precipitation_1h": "numeric",
        "precipitation_6h": "numeric",
    },
)

# A key has rows while it was on the schedule within 30 days: the longest look-back of the four views of traffic.
SEEN = 31 * DAY

origin_traffic = FeatureView(
    name="origin_traffic",
    description="What the origin's flights of the last hours tell.",
    entities=("origin",),
    available=Available("event_timestamp"),
    ttl=2 * HOUR,
    window=SEEN,
    features={
        "origin_overdue": "numeric",
        "origin_left_late_rate_1h": "numeric",
        "origin_mean_departure_delay_1h": "numeric",
        "origin_late_rate_3h": "numeric",
        "origin_mean_delay_3h": "numeric",
        "origin_mean_departure_delay_3h": "numeric",
        "origin_late_rate_24h": "numeric",
    },
)

carrier_traffic = FeatureView(
    name="carrier_traffic",
    description="What the carrier's flights of the last hours tell.",
    entities=("carrier",),
    available=Available("event_timestamp"),
    ttl=2 * HOUR,
    window=SEEN,
    features={
        "carrier_overdue": "numeric",
        "carrier_late_rate_3h": "numeric",
        "carrier_mean_departure_delay_3h": "numeric",
        "carrier_late_rate_24h": "numeric",
        "carrier_mean_delay_24h": "numeric",
    },
)

carrier_origin_traffic = FeatureView(
    name="carrier_origin_traffic",
    description="What the carrier's flights from this origin tell.",
    entities=("carrier", "origin"),
    available=Available("event_timestamp"),
    ttl=2 * HOUR,
    window=SEEN,
    features={
        "carrier_origin_overdue": "numeric",
        "carrier_origin_left_late_rate_3h": "numeric",
        "carrier_origin_mean_departure_delay_3h": "numeric",
        "carrier_origin_late_rate_24h": "numeric",
        "carrier_origin_mean_departure_delay_24h": "numeric",
    },
)

dest_traffic = FeatureView(
    name="dest_traffic",
    description="What flights to the destination tell.",
    entities=("dest",),
    available=Available("event_timestamp"),
    ttl=2 * HOUR,
    window=SEEN,
    features={
        "dest_overdue": "numeric",
        "dest_late_rate_3h": "numeric",
        "dest_mean_delay_3h": "numeric",
        "dest_mean_delay_6h": "numeric",
        "dest_late_rate_24h": "numeric",
    },
)

# Late flights land later than flights on time: until the longest ones are down, the labels of a day lean to on time.
late_arrival = LabelView(
    name="late_arrival",
    description="Whether a flight arrives more than 15 minutes late, of those that arrive.",
    entities=("flight_id", "carrier", "flight", "origin", "dest", "tailnum"),
    arrives=Available("landed_at"),
    horizon=timedelta(hours=12),
    # A decision reads its own flight, whose hour begins up to two hours later.
    window=timedelta(0),
    lead=2 * HOUR,
    set_aside="no_outcome",
)

flight_delay = FeatureService(
    name="flight_delay",
    description="What is known two hours before the scheduled departure of a flight from New York.",
    views=(
        "flight_schedule",
        "flight_record",
        "aircraft",
        "aircraft_last_leg",
        "origin_weather",
        "origin_traffic",
        "carrier_traffic",
        "carrier_origin_traffic",
        "dest_traffic",
    ),
)
