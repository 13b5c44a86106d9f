"""The triage of logs: from log lines and device facts to ranked causes. It works offline."""
