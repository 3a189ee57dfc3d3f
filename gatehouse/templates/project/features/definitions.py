"""The Feast definitions: entities, feature views, and the feature service that the model reads."""

from pathlib import Path

from feast import FeatureService

from gatehouse.components.features.feast_definitions import entity, feature_view

HERE = Path(__file__).parent

order_id = entity(HERE, "order_id")
customer_id = entity(HERE, "customer_id")

order_content = feature_view(HERE, "order_content")
customer_history = feature_view(HERE, "customer_history")

order_return = FeatureService(name="order_return", features=[order_content, customer_history])
