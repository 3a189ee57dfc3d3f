"""What a real Kubeflow Pipelines 2 does with our pipelines; for the cluster of a profile in GATEHOUSE_CLUSTER."""
