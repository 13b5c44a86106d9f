"""The version of fleet, for records, journals, reports and workers."""

from __future__ import annotations

VERSION = "0.3.0"
