"""The API of Kubeflow Pipelines: runs, versions of pipelines and schedules, from a laptop and from a pod."""
