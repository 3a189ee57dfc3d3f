"""Environment variables of a task's pod, and the config map and secret that some of them come from."""

RUN_ID = "GATEHOUSE_RUN_ID"
"""The run of a process; without it, the run is found by gatehouse.store.run.run_id."""
ATTEMPTS = "GATEHOUSE_ATTEMPTS"
"""Attempts inside one pod; retries by KFP are not counted: docs/specs.md#retries."""
LAUNCH = "GATEHOUSE_LAUNCH"
"""Where training jobs run, as JSON: docs/launchers.md."""
ENGINE = "GATEHOUSE_ENGINE"
"""Where the pieces of stages run, as JSON: docs/scale.md."""
ENDPOINT, NAMESPACE = "GATEHOUSE_KFP_ENDPOINT", "GATEHOUSE_KFP_NAMESPACE"
UI = "GATEHOUSE_KFP_UI"
"""Address of KFP's pages, where they are elsewhere than its API."""
ONLINE_STORE = "GATEHOUSE_ONLINE_STORE"
"""The variable for the key `online-store` of the credentials; only for pods that read or write that store."""
TRIGGERS_SECRET = "GATEHOUSE_TRIGGERS_SECRET"
"""The secret that signs events which come in."""
SETTINGS, CREDENTIALS = "gatehouse-settings", "gatehouse-credentials"
"""The config map and the secret, both optional."""
SETTINGS_KEYS = {
    "mlflow-tracking-uri": "GATEHOUSE_MLFLOW_TRACKING_URI",
    "aws-endpoint-url": "AWS_ENDPOINT_URL",
    "aws-region": "AWS_DEFAULT_REGION",
    "kfp-endpoint": ENDPOINT,
    "kfp-namespace": NAMESPACE,
    "kfp-ui": UI,
}
CREDENTIAL_KEYS = {
    "mlflow-tracking-token": "GATEHOUSE_MLFLOW_TRACKING_TOKEN",
    "aws-access-key-id": "AWS_ACCESS_KEY_ID",
    "aws-secret-access-key": "AWS_SECRET_ACCESS_KEY",
}
