"""Environment variables that say where Kubeflow Pipelines is, and as whom it is asked."""

TOKEN = "GATEHOUSE_KFP_TOKEN"
TOKEN_FILE = "GATEHOUSE_KFP_TOKEN_FILE"
MOUNTED_TOKEN = "KF_PIPELINES_SA_TOKEN_PATH"
"""The variable that a PodDefault of Kubeflow sets to the path of a pod's token; the KFP SDK reads it too."""
