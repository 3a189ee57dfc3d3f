"""The features of the forecast: what is known of an airport's weather when an hour is over.

The query of a view is in views/<name>.sql, that of the label in labels/<name>.sql.
"""

from datetime import timedelta

from gatehouse.features.definitions import Available, Entity, FeatureService, FeatureView, LabelView, Source

HOUR = timedelta(hours=1)

weather = Source(table="weather", event_time="time_hour")

origin = Entity(name="origin")

weather_now = FeatureView(
    name="weather_now",
    description="The hour that has just ended.",
    entities=("origin",),
    available=Available("event_timestamp"),
    ttl=3 * HOUR,
    window=2 * HOUR,
    features={
        "station": "categorical",
        "clock_hour": "categorical",
        "season_cosine": "numeric",
        "season_sine": "numeric",
        "temperature": "numeric",
        "dew_point_spread": "numeric",
        "wind_speed": "numeric",
        "wind_north": "numeric",
        "wind_east": "numeric",
        "pressure": "numeric",
        "visibility": "numeric",
        "precipitation": "numeric",
    },
)

weather_before = FeatureView(
    name="weather_before",
    description="How the weather came to be as it is: changes of the last hours, and what yesterday did from here on.",
    entities=("origin",),
    available=Available("event_timestamp"),
    ttl=3 * HOUR,
    window=26 * HOUR,
    features={
        "temperature_change_1h": "numeric",
        "temperature_change_3h": "numeric",
        "temperature_change_24h": "numeric",
        "pressure_change_3h": "numeric",
        "dew_point_change_3h": "numeric",
        "change_that_followed_yesterday": "numeric",
    },
)

temperature_change_6h = LabelView(
    name="temperature_change_6h",
    description="Degrees Fahrenheit by which it is warmer six hours after the decision.",
    entities=("origin",),
    arrives=Available("known_at"),
    task="regression",
)

temperature_change = FeatureService(name="temperature_change", views=("weather_now", "weather_before"))
