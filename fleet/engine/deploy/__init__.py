"""Deploys: plans, releases and their contents, switches and checks."""
