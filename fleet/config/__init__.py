"""Inventory and playbook: YAML files become models, errors keep their position."""
