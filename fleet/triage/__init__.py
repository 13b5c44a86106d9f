"""From lines of logs and facts of devices to ranked causes. Knows no device; works offline."""
