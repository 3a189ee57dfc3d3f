"""Posts to the webhook once: a delivery leaves a receipt, and a notice that nobody got is a warning on the record."""

import logging
from collections.abc import Mapping
from typing import Any

from gatehouse.operations.alerting import webhook
from gatehouse.store.run import Attempt
from gatehouse.store.store import ArtifactStore

logger = logging.getLogger(__name__)


def tell(
    store: ArtifactStore, what: str, body: Mapping[str, Any], key: str, receipt: str = "", **kept: Any
) -> webhook.Delivery:
    """Post a notice to the webhook that `GATEHOUSE_ALERT_WEBHOOK` names; what goes wrong is a warning in the record.

    Args:
        store: Holds the receipt and the record of this run.
        what: What it says, for the warning where nobody was told.
        body: The notice.
        key: Makes a repeat harmless.
        receipt: Key of the record that says that it was delivered; empty where that is not to be remembered.
        **kept: What the receipt says besides.
    """
    if receipt and store.objects.stat(receipt):
        return webhook.Delivery(True, 0, "was delivered by an earlier attempt")
    url = webhook.address()
    if not url:
        why = f"no webhook is set: {webhook.ADDRESS} is empty"
        _warn(store, f"Nobody was told that {what}: {why}")
        return webhook.Delivery(False, 0, why)
    posted = webhook.post(url, body, key)
    if not posted.delivered:
        _warn(store, f"Nobody was told that {what}: the webhook {posted.why}", attempts=posted.attempts)
    elif receipt:
        store.record(receipt, {"attempts": posted.attempts, **kept})
    return posted


def _warn(store: ArtifactStore, message: str, **more: Any) -> None:
    logger.warning("%s.", message)
    Attempt(store, "alert:webhook").note("warned", message=message, **more)
