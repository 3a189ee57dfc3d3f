"""The Feast definitions: entities, feature views (from their YAML), and the feature service of the delay model."""

from pathlib import Path

from feast import FeatureService

from gatehouse.components.features.feast_definitions import entity, feature_view

HERE = Path(__file__).parent

flight_id = entity(HERE, "flight_id")
carrier = entity(HERE, "carrier")
flight = entity(HERE, "flight")
origin = entity(HERE, "origin")
dest = entity(HERE, "dest")
tailnum = entity(HERE, "tailnum")

flight_schedule = feature_view(HERE, "flight_schedule")
flight_record = feature_view(HERE, "flight_record")
aircraft = feature_view(HERE, "aircraft")
aircraft_last_leg = feature_view(HERE, "aircraft_last_leg")
origin_weather = feature_view(HERE, "origin_weather")
origin_traffic = feature_view(HERE, "origin_traffic")
carrier_traffic = feature_view(HERE, "carrier_traffic")
carrier_origin_traffic = feature_view(HERE, "carrier_origin_traffic")
dest_traffic = feature_view(HERE, "dest_traffic")

flight_delay = FeatureService(
    name="flight_delay",
    features=[
        flight_schedule,
        flight_record,
        aircraft,
        aircraft_last_leg,
        origin_weather,
        origin_traffic,
        carrier_traffic,
        carrier_origin_traffic,
        dest_traffic,
    ],
    description="What is known two hours before the scheduled departure of a flight from New York.",
)
