"""The features of the forecast: what is known of an airport's sight and moisture when an hour is over.

The query of a view is in views/<name>.sql, that of the label in labels/<name>.sql.
"""

from datetime import timedelta

from gatehouse.features.definitions import Available, Entity, FeatureService, FeatureView, LabelView, Source

HOUR = timedelta(hours=1)

weather = Source(table="weather", event_time="time_hour")

origin = Entity(name="origin")

sight_now = FeatureView(
    name="sight_now",
    description="The hour that has just ended.",
    entities=("origin",),
    available=Available("event_timestamp"),
    ttl=3 * HOUR,
    window=2 * HOUR,
    features={
        "station": "categorical",
        "clock_hour": "numeric",
        "visibility": "numeric",
        "humidity": "numeric",
        "temperature": "numeric",
        "dew_point_spread": "numeric",
        "wind_speed": "numeric",
        "wind_north": "numeric",
        "wind_east": "numeric",
        "pressure": "numeric",
        "precipitation": "numeric",
    },
)

sight_before = FeatureView(
    name="sight_before",
    description="How sight, moisture and pressure changed over the last hours.",
    entities=("origin",),
    available=Available("event_timestamp"),
    ttl=3 * HOUR,
    window=8 * HOUR,
    features={
        "visibility_change_1h": "numeric",
        "lowest_visibility_6h": "numeric",
        "dew_point_spread_change_3h": "numeric",
        "pressure_change_3h": "numeric",
        "precipitation_6h": "numeric",
    },
)

visibility_in_3h = LabelView(
    name="visibility_in_3h",
    description="Clear: the ten miles that are measured at most. Low: less than three miles.",
    entities=("origin",),
    arrives=Available("known_at"),
    task="multiclass",
    classes=("clear", "hazy", "low"),
)

visibility_ahead = FeatureService(name="visibility_ahead", views=("sight_now", "sight_before"))
