"""The features of the model: sources, entities, feature views, the label, and the service that the model reads.

The query of a view is in views/<name>.sql, that of the label in labels/<name>.sql.
"""

from datetime import timedelta

from gatehouse.features.definitions import Available, Entity, FeatureService, FeatureView, LabelView, Source

orders = Source(table="orders", event_time="placed_at")

order_id = Entity(name="order_id")
customer_id = Entity(name="customer_id")

order_content = FeatureView(
    name="order_content",
    description="What the order itself says; known when it is placed.",
    entities=("order_id",),
    available=Available("event_timestamp"),
    window=timedelta(0),
    features={"category": "categorical", "amount": "numeric"},
)

# No window: every settled order of the past counts. A `ttl`, where one is set, must be longer than the availability_lag
# in project.yaml: rows are served as of the newest order and that lag, and all would be expired by then.
customer_history = FeatureView(
    name="customer_history",
    description="What a customer's settled orders tell.",
    entities=("customer_id",),
    available=Available("event_timestamp"),
    features={"settled_orders": "numeric", "returned_orders": "numeric"},
)

returned = LabelView(
    name="returned",
    description="Whether an order is returned, known when it is settled.",
    entities=("order_id", "customer_id"),
    arrives=Available("known_at"),
)

order_return = FeatureService(name="order_return", views=("order_content", "customer_history"))
