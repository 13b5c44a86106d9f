"""fleet: deploy, run, profile and diagnose models on fleets of Qualcomm NPU devices."""

__version__ = "0.1.0"
